// mhc_post: a thread takes its channels of y and of all four streams, and gives all four.
#include "mhc/mix.cuh"
#include "op_table.h"

namespace dsv4::mhc {
namespace {

constexpr int kThreads = 128;

template <class T, int N>
__global__ void __launch_bounds__(kThreads) post_kernel(const __grid_constant__ Params p) {
    const int packs = p.hidden / N;
    const int64_t pack = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (pack >= p.tokens * packs) return;
    const int64_t token = pack / packs;
    const int64_t first = token * kStreams * p.hidden + pack % packs * N;
    const Pack<T, N> y = load_pack<N>(static_cast<const T*>(p.y) + pack * N);
    Pack<T, N> x[kStreams];
#pragma unroll
    for (int j = 0; j < kStreams; ++j) x[j] = load_pack<N>(static_cast<const T*>(p.streams) + first + j * p.hidden);
    const float* post = p.post + token * kStreams;
    const float* comb = p.comb + token * kStreams * kStreams;
#pragma unroll 1  // fewer registers, more threads that wait for memory
    for (int k = 0; k < kStreams; ++k) {
        const float to_k[kStreams] = {comb[k], comb[kStreams + k], comb[2 * kStreams + k], comb[3 * kStreams + k]};
        store_pack(static_cast<T*>(p.streams_out) + first + int64_t(k) * p.hidden, leave(post[k], to_k, y, x));
    }
}

template <class T>
void launch_packs(const Params& p, cudaStream_t stream) {
    constexpr int N = kPack<T>;
    const bool packs = p.hidden % N == 0 && aligned(p.y, 16) && aligned(p.streams, 16) && aligned(p.streams_out, 16);
    const auto chosen = packs ? post_kernel<T, N> : post_kernel<T, 1>;
    chosen<<<ceil_div(p.tokens * (p.hidden / (packs ? N : 1)), kThreads), kThreads, 0, stream>>>(p);
    check_launch("mhc_post");
}

void launch(const Call& call, void*, cudaStream_t stream) {
    using namespace table::mhc_post;
    Params p = stream_params(call.in(in::streams));
    leave_params(p, call.in(in::y), call.in(in::post), call.in(in::comb), call.out(out::streams));
    if (p.tokens == 0 || p.hidden == 0) return;
    if (call.in(in::streams).dtype == DSV4_F32) {
        launch_packs<float>(p, stream);
    } else {
        launch_packs<bf16>(p, stream);
    }
}

const Registration registration("mhc_post", no_workspace, launch);

}  // namespace
}  // namespace dsv4::mhc
