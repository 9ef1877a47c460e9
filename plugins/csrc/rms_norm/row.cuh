// RMS norm of one row by one block: x is read once and waits for its scale in registers.
#pragma once

#include "common/pack.cuh"
#include "common/reduce.cuh"

namespace dsv4::rms_norm {

constexpr int kThreads = 128;  // small blocks: many rows wait for memory at once

// out = x * rsqrt(mean(x^2) + eps) * weight, N elements at a time: `width` and the addresses must be
// multiples of it. A thread keeps `Held` packs; what is beyond is read again. `scratch` is kThreads / 32
// floats of shared memory.
template <int N, int Held, class T>
__device__ void normalise_row(const T* x, const bf16* weight, T* out, int width, float eps, float* scratch) {
    constexpr int kStep = kThreads * N;
    Pack<T, N> held[Held];
#pragma unroll
    for (int i = 0; i < Held; ++i) {
        const int at = i * kStep + threadIdx.x * N;
        if (at < width) held[i] = load_pack<N>(x + at);
    }
    float squares = 0;
    const auto add = [&](const Pack<T, N>& pack) {
#pragma unroll
        for (int e = 0; e < N; ++e) squares += to_float(pack.at[e]) * to_float(pack.at[e]);
    };
#pragma unroll
    for (int i = 0; i < Held; ++i) {
        if (i * kStep + threadIdx.x * N < width) add(held[i]);
    }
    for (int at = Held * kStep + threadIdx.x * N; at < width; at += kStep) add(load_pack<N>(x + at));

    const float scale = rsqrtf(block_sum<kThreads>(squares, scratch) / width + eps);
    const auto write = [&](Pack<T, N> pack, int at) {
        const Pack<bf16, N> weights = load_pack<N>(weight + at);
#pragma unroll
        for (int e = 0; e < N; ++e) {
            pack.at[e] = from_float<T>(to_float(weights.at[e]) * (to_float(pack.at[e]) * scale));
        }
        store_pack(out + at, pack);
    };
#pragma unroll
    for (int i = 0; i < Held; ++i) {
        const int at = i * kStep + threadIdx.x * N;
        if (at < width) write(held[i], at);
    }
    for (int at = Held * kStep + threadIdx.x * N; at < width; at += kStep) write(load_pack<N>(x + at), at);
}

}  // namespace dsv4::rms_norm
