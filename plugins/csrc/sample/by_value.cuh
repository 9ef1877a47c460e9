// Finds a place in a row ordered by value, best first, without ordering it: by histograms of digits.
#pragma once

#include "sample/row.cuh"

namespace dsv4::sample {

// The token that has this key and is the `rank`th of those that have it, counted from one by id. A set of
// the best tokens is given by its last one.
struct Place {
    uint32_t key;
    u64 rank;
};

__device__ __forceinline__ void add_to_bin(Shared& shared, int bin, u64 amount) {
    if (amount == 0) return;
    const int at = bin * kCopies + threadIdx.x % kCopies;
    const uint32_t low = uint32_t(amount);
    const uint32_t before = atomicAdd(&shared.low[at], low);
    const uint32_t high = uint32_t(amount >> 32) + (before + low < before);
    if (high) atomicAdd(&shared.high[at], high);
}

__device__ __forceinline__ void sum_copies(Shared& shared) {
    const int bin = threadIdx.x;
    if (bin >= kBins) return;
    u64 low = 0, high = 0;
    for (int i = 0; i < kCopies; ++i) {
        const int at = bin * kCopies + (i + bin / 2) % kCopies;     // two bins fill the banks
        low += shared.low[at];
        high += shared.high[at];
    }
    shared.bins[bin] = low + (high << 32);
}

// Warp 0: the highest bin at which the sum from the top passes `target`, and the sum above it.
__device__ __forceinline__ void pick_bin(Shared& shared, u64 target) {
    constexpr int kEach = kBins / 32;
    const int lane = threadIdx.x % 32, top = kBins - 1 - lane * kEach;
    u64 sum = 0;
    for (int i = 0; i < kEach; ++i) sum += shared.bins[top - i];
    const u64 inclusive = inclusive_sum(sum);
    if (lane != first_lane(inclusive > target)) return;
    u64 above = inclusive - sum;
    int bin = top;
    while (bin > top - kEach + 1 && above + shared.bins[bin] <= target) above += shared.bins[bin--];
    shared.digit = bin;
    shared.above = above;
}

// The first token, best first, at which the running sum of `measure` passes `target`.
template <int N, class Measure>
__device__ __noinline__ Place by_value(const float* row, int vocab, Measure measure, u64 target, Shared& shared) {
    uint32_t prefix = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < kBins * kCopies; i += kThreads) shared.low[i] = shared.high[i] = 0;
        __syncthreads();
        for_each<N>(row, vocab, [&](int, float x) {
            const uint32_t key = ordered(x);
            if (shift == 24 || key >> (shift + 8) == prefix) add_to_bin(shared, key >> shift & 255, measure(x));
        });
        __syncthreads();
        sum_copies(shared);
        __syncthreads();
        if (threadIdx.x < 32) pick_bin(shared, target);
        __syncthreads();
        prefix = prefix << 8 | shared.digit;
        target -= shared.above;
    }
    const u64 each = measure(unordered(prefix));
    return {prefix, target / (each ? each : 1) + 1};
}

// The sum of `measure` over the tokens up to a place.
template <int N, class Measure>
__device__ __forceinline__ u64 sum_to(const float* row, int vocab, Measure measure, Place last, Shared& shared) {
    u64 sum = 0;
    for_each<N>(row, vocab, [&](int, float x) {
        if (ordered(x) > last.key) sum += measure(x);
    });
    sum = block_all(sum, Sum{}, shared);
    return sum + (last.rank ? last.rank * measure(unordered(last.key)) : 0);
}

}  // namespace dsv4::sample
