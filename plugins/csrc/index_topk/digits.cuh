// Parts of a radix select over one row of ordered keys: stretches, histograms of digits, prefix sums.
#pragma once

#include "common/reduce.cuh"
#include "index_topk/index_topk.h"

namespace dsv4::index_topk {

// Digits of a key from the top: kTop bits each, the last one what is left.
template <class Key, int kTop>
struct Digits {
    static constexpr int kBits = 8 * sizeof(Key), kLevels = (kBits + kTop - 1) / kTop;
    static constexpr int shift(int level) { return level < kLevels - 1 ? kBits - (level + 1) * kTop : 0; }
    static constexpr int bits(int level) { return kBits - level * kTop - shift(level); }
    static constexpr int kBins = ((kLevels - 1) << kTop) + (1 << (kBits - (kLevels - 1) * kTop));  // of all levels
};

// One thread's part of a row.
template <class Key>
struct Stretch {
    static constexpr int kKeys = 16 / sizeof(Key);   // of one load
    const uint4* row;
    int begin, end, entries;    // loads; entries of the row

    // Calls visit(key, entry) for each entry, in order.
    template <class Visit>
    __device__ __forceinline__ void each(Visit visit) const {
        for (int load = begin; load < end; ++load) {
            const uint4 words = row[load];
            const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
            for (int i = 0; i < kKeys; ++i) {
                if (load * kKeys + i < entries) visit(key(word, i), load * kKeys + i);
            }
        }
    }
    // Only entries with keys from `least` on: quick where these are few, also within a warp.
    template <class Visit>
    __device__ __forceinline__ void each_from(Key least, Visit visit) const {
        for (int load = begin; load < end; ++load) {
            const uint4 words = row[load];
            const uint32_t word[4] = {words.x, words.y, words.z, words.w};
            uint32_t found = 0;
#pragma unroll
            for (int i = 0; i < kKeys; ++i) found |= uint32_t(key(word, i) >= least) << i;
            const int left = entries - load * kKeys;
            if (left < kKeys) found &= (1u << left) - 1;
            for (; found > 0; found &= found - 1) {
                const int i = __ffs(found) - 1, at = i / (kKeys / 4);
                const uint32_t from = at & 2 ? (at & 1 ? words.w : words.z) : (at & 1 ? words.y : words.x);
                visit(Key(from >> (i * 8 * sizeof(Key) % 32)), load * kKeys + i);
            }
        }
    }
    static __device__ __forceinline__ Key key(const uint32_t (&word)[4], int i) {
        return sizeof(Key) == 4 ? word[i % 4] : word[i / 2 % 4] >> (16 * (i % 2));
    }
};

// Counts the digits of keys in one thread's stretch. Runs of one digit count once: rows of equal scores would
// queue up at one bin.
template <int kShift, int kBits>
struct DigitCounter {
    uint32_t* bins;
    uint32_t last = 0, run = 0;

    __device__ __forceinline__ void add(uint32_t key) {
        const uint32_t digit = key >> kShift & ((1u << kBits) - 1);
        if (digit != last) flush();
        last = digit;
        ++run;
    }
    __device__ __forceinline__ void flush() {
        if (run > 0) atomicAdd(&bins[last], run);
        run = 0;
    }
};

// Sum of `x` over the threads before this one; `total` is over all.
template <int kThreads>
__device__ uint64_t sum_before(uint64_t x, uint64_t* warp_sums, uint64_t& total) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint64_t sum = x;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        const uint64_t other = __shfl_up_sync(kFullMask, sum, offset);
        if (lane >= offset) sum += other;
    }
    __syncthreads();    // an earlier call's sums have been read
    if (lane == 31) warp_sums[warp] = sum;
    __syncthreads();
    uint64_t before = 0;
    total = 0;
#pragma unroll
    for (int i = 0; i < kThreads / 32; ++i) {
        if (i == warp) before = total;
        total += warp_sums[i];
    }
    return before + sum - x;
}

struct Found {
    uint32_t digit, above;
};

// The digit of the key that is number `wanted` from the top, and how many keys have a higher one; `found`
// stays as it is if there are fewer keys. `bins` may be those of another block of the cluster.
template <int kThreads, int kBits>
__device__ void find_digit(const uint32_t* bins, uint32_t wanted, uint64_t* warp_sums, Found& found) {
    constexpr int kCount = 1 << kBits, kEach = kCount > kThreads ? kCount / kThreads : 1;
    const int low = kCount - (int(threadIdx.x) + 1) * kEach;    // this thread's bins, the first threads' on top
    uint32_t own[kEach], sum = 0;
    if constexpr (kEach % 4 == 0) {
#pragma unroll
        for (int i = 0; i < kEach; i += 4) {
            const uint4 four = *reinterpret_cast<const uint4*>(bins + low + i);
            own[i] = four.x, own[i + 1] = four.y, own[i + 2] = four.z, own[i + 3] = four.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < kEach; ++i) own[i] = low >= 0 ? bins[low + i] : 0;
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) sum += own[i];
    uint64_t total;
    uint32_t above = sum_before<kThreads>(sum, warp_sums, total);
    if (above < wanted && wanted <= above + sum) {
#pragma unroll
        for (int i = kEach - 1; i >= 0; --i) {
            if (above < wanted && wanted <= above + own[i]) found = {uint32_t(low + i), above};
            above += own[i];
        }
    }
    __syncthreads();
}

}  // namespace dsv4::index_topk
