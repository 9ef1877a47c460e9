// RMS norm of one row by one block: x is read once and waits for its scale in registers.
#pragma once

#include "common/numbers.cuh"
#include "common/pack.cuh"
#include "common/reduce.cuh"

namespace dsv4::rms_norm {

// out = x * rsqrt(mean(x^2) + eps) * weight, N elements at a time: `width` and the addresses must be
// multiples of it. Each of the block's `Threads` keeps `Held` packs of x and weight; what is beyond is read
// again. `scratch` is Threads / 32 floats of shared memory.
template <int Threads, int N, int Held, class T>
__device__ void normalise_row(const T* x, const bf16* weight, T* out, int width, float eps, float* scratch) {
    constexpr int kStep = Threads * N;
    const int first = threadIdx.x * N;
    Pack<T, N> held[Held];
    Pack<bf16, N> weights[Held];
#pragma unroll
    for (int i = 0; i < Held; ++i) {
        if (first + i * kStep < width) held[i] = load_pack<N>(x + first + i * kStep);
    }
#pragma unroll
    for (int i = 0; i < Held; ++i) {
        if (first + i * kStep < width) weights[i] = load_pack<N>(weight + first + i * kStep);
    }
    float squares = 0;
    const auto add = [&](const Pack<T, N>& pack) {
#pragma unroll
        for (int e = 0; e < N; ++e) squares += to_float(pack.at[e]) * to_float(pack.at[e]);
    };
#pragma unroll
    for (int i = 0; i < Held; ++i) {
        if (first + i * kStep < width) add(held[i]);
    }
    for (int at = first + Held * kStep; at < width; at += kStep) add(load_pack<N>(x + at));

    const float scale = rsqrtf(block_sum<Threads>(squares, scratch) / width + eps);
    const auto write = [&](Pack<T, N> pack, const Pack<bf16, N>& weights, int at) {
#pragma unroll
        for (int e = 0; e < N; ++e) {
            pack.at[e] = from_float<T>(to_float(weights.at[e]) * (to_float(pack.at[e]) * scale));
        }
        store_pack(out + at, pack);
    };
#pragma unroll
    for (int i = 0; i < Held; ++i) {
        if (first + i * kStep < width) write(held[i], weights[i], first + i * kStep);
    }
    for (int at = first + Held * kStep; at < width; at += kStep) {
        write(load_pack<N>(x + at), load_pack<N>(weight + at), at);
    }
}

}  // namespace dsv4::rms_norm
