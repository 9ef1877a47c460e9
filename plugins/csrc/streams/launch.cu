// A hidden state copied into every residual stream, or added to it: a thread takes its channels of x once
// for all streams of the token.
#include "common/numbers.cuh"
#include "common/pack.cuh"
#include "op_table.h"
#include "streams/streams.h"

namespace dsv4::streams {
namespace {

constexpr int kThreads = 128;

template <class T, int N, bool Add>
__global__ void __launch_bounds__(kThreads) kernel(Params p) {
    const int64_t packs_a_token = p.hidden / N;
    const int64_t pack = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (pack >= p.tokens * packs_a_token) return;
    const int64_t token = pack / packs_a_token;
    const int64_t first = (token * p.count * packs_a_token + pack % packs_a_token) * N;
    const T* streams = static_cast<const T*>(p.streams) + first;
    T* out = static_cast<T*>(p.out) + first;
    const Pack<T, N> x = load_pack<N>(static_cast<const T*>(p.x) + pack * N);
#pragma unroll 4
    for (int64_t j = 0; j < p.count; ++j) {
        Pack<T, N> result = x;
        if constexpr (Add) {
            const Pack<T, N> stream = load_pack<N>(streams + j * p.hidden);
#pragma unroll
            for (int e = 0; e < N; ++e) result.at[e] = from_float<T>(to_float(stream.at[e]) + to_float(x.at[e]));
        }
        store_pack(out + j * p.hidden, result);
    }
}

template <class T, bool Add>
void launch_packs(const Params& p, cudaStream_t stream) {
    constexpr int N = kPack<T>;
    const bool packs = p.hidden % N == 0 && aligned(p.x, 16) && aligned(p.streams, 16) && aligned(p.out, 16);
    const auto chosen = packs ? kernel<T, N, Add> : kernel<T, 1, Add>;
    const int64_t threads = p.tokens * (p.hidden / (packs ? N : 1));
    chosen<<<ceil_div(threads, kThreads), kThreads, 0, stream>>>(p);
    check_launch(Add ? "add_streams" : "expand_streams");
}

template <bool Add>
void run(const Dsv4Tensor& x, const void* streams, const Dsv4Tensor& out, cudaStream_t stream) {
    require_dense(x, "x");
    require_dense(out, "streams");
    const Params p = {x.data,       streams,
                      out.data,     x.shape[0],
                      static_cast<int>(out.shape[1]), static_cast<int>(x.shape[1])};
    if (elements(out) == 0) return;
    if (x.dtype == DSV4_F32) {
        launch_packs<float, Add>(p, stream);
    } else {
        launch_packs<bf16, Add>(p, stream);
    }
}

void expand(const Call& call, void*, cudaStream_t stream) {
    using namespace table::expand_streams;
    run<false>(call.in(in::x), nullptr, call.out(out::streams), stream);
}

void add(const Call& call, void*, cudaStream_t stream) {
    using namespace table::add_streams;
    require_dense(call.in(in::streams), "streams");
    run<true>(call.in(in::x), call.in(in::streams).data, call.out(out::streams), stream);
}

const Registration expand_registration("expand_streams", no_workspace, expand);
const Registration add_registration("add_streams", no_workspace, add);

}  // namespace
}  // namespace dsv4::streams
