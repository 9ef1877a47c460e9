// bf16 to fp32 and back, four elements a thread.
#include "collective/collective.h"
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"
#include "common/pack.cuh"

namespace dsv4::collective {
namespace {

constexpr int kThreads = 256;
constexpr int N = 4;

template <class From, class To>
__global__ void __launch_bounds__(kThreads) kernel(const From* from, To* to, int64_t count, int64_t packs) {
    const int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    allow_next();
    if (thread < packs) {
        const Pack<From, N> x = load_pack<N>(from + thread * N);
        Pack<To, N> out;
#pragma unroll
        for (int i = 0; i < N; ++i) out.at[i] = from_float<To>(to_float(x.at[i]));
        store_pack(to + thread * N, out);
        return;
    }
    const int64_t i = packs * N + (thread - packs);  // behind the last whole pack, one by one
    if (i < count) to[i] = from_float<To>(to_float(from[i]));
}

template <class From, class To>
void cast(const From* from, To* to, int64_t count, cudaStream_t stream) {
    const int64_t packs = aligned(from, N * sizeof(From)) && aligned(to, N * sizeof(To)) ? count / N : 0;
    const int64_t threads = packs + (count - packs * N);
    kernel<<<ceil_div(threads, kThreads), kThreads, 0, stream>>>(from, to, count, packs);
    check_launch("a cast");
}

}  // namespace

void widen(const void* from, float* to, int64_t count, cudaStream_t stream) {
    cast(static_cast<const bf16*>(from), to, count, stream);
}

void narrow(const float* from, void* to, int64_t count, cudaStream_t stream) {
    cast(from, static_cast<bf16*>(to), count, stream);
}

}  // namespace dsv4::collective
