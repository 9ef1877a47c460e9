// A row of logits as one block reads it.
//
// Weights are whole numbers here, 2^scale for the best token: their sums are exact, so no result depends on
// the order in which threads add.
#pragma once

#include "common/pack.cuh"
#include "common/reduce.cuh"
#include "sample/sample.h"

namespace dsv4::sample {

constexpr int kThreads = 1024, kWarps = kThreads / 32;
constexpr int kBins = 256, kCopies = 16;        // of a histogram; copies keep threads out of each other's way

using u64 = unsigned long long;

struct Shared {
    uint32_t low[kBins * kCopies], high[kBins * kCopies];
    u64 bins[kBins];
    u64 segments[kThreads];
    u64 scratch[kWarps];
    u64 above;
    int digit, token, count;
};

// Larger for larger values; both zeros are one. Nothing is said of NaN.
__device__ __forceinline__ uint32_t ordered(float x) {
    const uint32_t bits = __float_as_uint(x == 0 ? 0.0f : x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float unordered(uint32_t key) {
    return __uint_as_float(key & 0x80000000u ? key & 0x7FFFFFFFu : ~key);
}

// A token as a number: larger for a better one, of equals for the one with the lower id.
__device__ __forceinline__ u64 ranked(float x, int id) { return u64(ordered(x)) << 32 | ~uint32_t(id); }
__device__ __forceinline__ int id_of(u64 rank) { return static_cast<int>(~uint32_t(rank)); }
__device__ __forceinline__ float value_of(u64 rank) { return unordered(uint32_t(rank >> 32)); }

// Calls body(id, logit) for the whole row, each thread for its part, several loads at once.
template <int N, class Body>
__device__ __forceinline__ void for_each(const float* row, int vocab, Body body) {
    constexpr int kBatch = 16 / N;
    const int packs = vocab / N;
    for (int first = threadIdx.x; first < packs; first += kBatch * kThreads) {
        Pack<float, N> batch[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            if (first + i * kThreads < packs) batch[i] = load_pack<N>(row + int64_t(first + i * kThreads) * N);
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            if (first + i * kThreads >= packs) break;
#pragma unroll
            for (int e = 0; e < N; ++e) body((first + i * kThreads) * N + e, batch[i].at[e]);
        }
    }
}

// op over all threads' values, in every thread.
template <class T, class Op>
__device__ __forceinline__ T block_all(T x, Op op, Shared& shared) {
    T* scratch = reinterpret_cast<T*>(shared.scratch);
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x = op(x, __shfl_xor_sync(kFullMask, x, offset));
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
    __syncthreads();
    x = scratch[threadIdx.x % 32];
    __syncthreads();
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x = op(x, __shfl_xor_sync(kFullMask, x, offset));
    return x;
}

struct Sum {
    template <class T>
    __device__ T operator()(T a, T b) const { return a + b; }
};
struct Largest {
    template <class T>
    __device__ T operator()(T a, T b) const { return a > b ? a : b; }
};

// Sums of the lanes up to and with this one.
__device__ __forceinline__ u64 inclusive_sum(u64 x) {
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        const u64 before = __shfl_up_sync(kFullMask, x, offset);
        if (threadIdx.x % 32 >= offset) x += before;
    }
    return x;
}

// The first lane that crosses; the last one if none does.
__device__ __forceinline__ int first_lane(bool crosses) {
    const unsigned lanes = __ballot_sync(kFullMask, crosses);
    return lanes ? __ffs(lanes) - 1 : 31;
}

// What a token counts: one, or its weight.
struct One {
    __device__ u64 operator()(float) const { return 1; }
};
struct IsKey {
    uint32_t key;
    __device__ u64 operator()(float x) const { return ordered(x) == key; }
};
struct Weight {
    float best, temperature, min_p, scale;
    __device__ u64 operator()(float x) const {
        const float weight = expf((x - best) / temperature);
        return weight < min_p ? 0 : __float2ull_rn(weight * scale);
    }
};

}  // namespace dsv4::sample
