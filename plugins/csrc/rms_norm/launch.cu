// x * rsqrt(mean(x^2) + eps) * weight over the last dimension: one block a row.
#include "op_table.h"
#include "rms_norm/rms_norm.h"
#include "rms_norm/row.cuh"

namespace dsv4::rms_norm {
namespace {

template <class T, int N, int Threads, int Held>
__global__ void __launch_bounds__(Threads) kernel(Params p) {
    __shared__ float scratch[Threads / 32];
    const int64_t row = int64_t(blockIdx.x) * p.width;
    normalise_row<Threads, N, Held>(static_cast<const T*>(p.x) + row, p.weight, static_cast<T*>(p.out) + row, p.width,
                                    p.eps, scratch);
}

Params params(const Call& call) {
    using namespace table::rms_norm;
    const Dsv4Tensor& x = call.in(in::x);
    const Dsv4Tensor& weight = call.in(in::weight);
    const Dsv4Tensor& out = call.out(out::out);
    require_dense(x, "x");
    require_dense(weight, "weight");
    require_dense(out, "out");
    const int64_t width = x.shape[x.rank - 1];
    DSV4_REQUIRE(weight.shape[0] == width, "'weight' has %lld channels; expected %lld, as 'x' has",
                 static_cast<long long>(weight.shape[0]), static_cast<long long>(width));
    const int64_t rows = width == 0 ? 0 : elements(x) / width;
    return {x.data, data<const bf16>(weight), out.data, rows, static_cast<int>(width), call.real(attr::eps)};
}

template <class T, int N, int Threads, int Held>
void launch_blocks(const Params& p, cudaStream_t stream) {
    kernel<T, N, Threads, Held><<<p.rows, Threads, 0, stream>>>(p);
    check_launch("rms_norm");
}

template <class T>
void launch_rows(const Params& p, cudaStream_t stream) {
    constexpr int N = kPack<T>;
    if (p.width % N != 0 || !aligned(p.x, 16) || !aligned(p.weight, 2 * N) || !aligned(p.out, 16)) {
        return launch_blocks<T, 1, 256, 4>(p, stream);
    }
    const int packs = p.width / N;
    if (packs <= 2 * 128) return launch_blocks<T, N, 128, 2>(p, stream);  // many rows wait for memory at once
    if (p.rows <= device().multiprocessors) return launch_blocks<T, N, 512, 2>(p, stream);  // short ways for a few rows
    if (packs <= 2 * 256) return launch_blocks<T, N, 256, 2>(p, stream);
    launch_blocks<T, N, 256, 4>(p, stream);
}

void launch(const Call& call, void*, cudaStream_t stream) {
    const Params p = params(call);
    if (p.rows == 0) return;
    if (call.in(table::rms_norm::in::x).dtype == DSV4_F32) {
        launch_rows<float>(p, stream);
    } else {
        launch_rows<bf16>(p, stream);
    }
}

const Registration registration("rms_norm", no_workspace, launch);

}  // namespace
}  // namespace dsv4::rms_norm
