// The stacked down-projection split into q and kv, each part RMS-normed: one block a row and part.
#include "op_table.h"
#include "qkv_norm/qkv_norm.h"
#include "rms_norm/row.cuh"

namespace dsv4::qkv_norm {
namespace {

constexpr int kThreads = 128;
constexpr int kHeld = 2;  // packs a thread keeps: both parts are narrow

template <class T, int N>
__global__ void __launch_bounds__(kThreads) kernel(const __grid_constant__ Params p) {
    __shared__ float scratch[kThreads / 32];
    const int64_t row = blockIdx.x / 2;
    const Part part = blockIdx.x % 2 == 0 ? p.parts[0] : p.parts[1];
    rms_norm::normalise_row<kThreads, N, kHeld>(static_cast<const T*>(p.x) + row * p.row_width + part.begin,
                                                part.weight, static_cast<T*>(part.out) + row * part.width, part.width,
                                                p.eps, scratch);
}

Part part(const Dsv4Tensor& weight, const Dsv4Tensor& out, int begin) {
    require_dense(weight, "weight");
    require_dense(out, "out");
    return {data<const __nv_bfloat16>(weight), out.data, begin, static_cast<int>(weight.shape[0])};
}

Params params(const Call& call) {
    using namespace table::qkv_norm;
    const Dsv4Tensor& x = call.in(in::x);
    require_dense(x, "x");
    const Part q = part(call.in(in::q_weight), call.out(out::qr), 0);
    const Part kv = part(call.in(in::kv_weight), call.out(out::kv), q.width);
    DSV4_REQUIRE(x.shape[1] == q.width + kv.width, "'x' has %lld columns; expected %d + %d, as the weights have",
                 static_cast<long long>(x.shape[1]), q.width, kv.width);
    return {x.data, {q, kv}, x.shape[0], static_cast<int>(x.shape[1]), call.real(attr::eps)};
}

template <class T>
void launch_rows(const Params& p, cudaStream_t stream) {
    constexpr int N = kPack<T>;
    bool packs = aligned(p.x, 16);
    for (const Part& part : p.parts) {
        packs = packs && part.width % N == 0 && aligned(part.weight, 2 * N) && aligned(part.out, 16);
    }
    const auto chosen = packs ? kernel<T, N> : kernel<T, 1>;
    chosen<<<2 * p.rows, kThreads, 0, stream>>>(p);
    check_launch("qkv_norm");
}

void launch(const Call& call, void*, cudaStream_t stream) {
    const Params p = params(call);
    if (p.rows == 0) return;
    if (call.in(table::qkv_norm::in::x).dtype == DSV4_F32) {
        launch_rows<float>(p, stream);
    } else {
        launch_rows<bf16>(p, stream);
    }
}

const Registration registration("qkv_norm", no_workspace, launch);

}  // namespace
}  // namespace dsv4::qkv_norm
