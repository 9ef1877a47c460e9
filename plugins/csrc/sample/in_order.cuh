// Finds the token, by rising id, at which a running sum passes a target.
//
// The row falls into at most kThreads segments of whole warp loads. Their sums come first; then one warp
// walks through the segment that has the token.
#pragma once

#include "sample/row.cuh"

namespace dsv4::sample {

struct Segments {
    int units;      // warp loads of a segment
    int count;

    template <int N>
    static __device__ __forceinline__ Segments of(int vocab) {
        const int all = (vocab + 32 * N - 1) / (32 * N);
        const int units = (all + kThreads - 1) / kThreads;
        return {units, (all + units - 1) / units};
    }
};

template <int N, class Measure>
__device__ __forceinline__ void sum_segments(const float* row, int vocab, Segments segments, Measure measure,
                                             Shared& shared) {
    constexpr int kBatch = 4;
    const int lane = threadIdx.x % 32;
    for (int first = threadIdx.x / 32; first < segments.count; first += kBatch * kWarps) {
        u64 sums[kBatch] = {};
        for (int unit = 0; unit < segments.units; ++unit) {
            Pack<float, N> batch[kBatch];
            bool present[kBatch];
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
                const int segment = first + i * kWarps;
                const int64_t id = (int64_t(segment) * segments.units + unit) * 32 * N + lane * N;
                present[i] = segment < segments.count && id < vocab;
                if (present[i]) batch[i] = load_pack<N>(row + id);
            }
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
#pragma unroll
                for (int e = 0; e < N; ++e) {
                    if (present[i]) sums[i] += measure(batch[i].at[e]);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
#pragma unroll
            for (int offset = 16; offset > 0; offset /= 2) sums[i] += __shfl_xor_sync(kFullMask, sums[i], offset);
            if (lane == 0 && first + i * kWarps < segments.count) shared.segments[first + i * kWarps] = sums[i];
        }
    }
}

// Warp 0: walks through one segment; `before` is the sum ahead of it.
template <int N, class Measure>
__device__ __forceinline__ int walk(const float* row, int vocab, int64_t begin, int units, Measure measure, u64 before,
                                    u64 target) {
    const int lane = threadIdx.x % 32;
    int found = vocab - 1;
    for (int unit = 0; unit < units; ++unit) {
        const int64_t id = begin + int64_t(unit) * 32 * N + lane * N;
        u64 each[N] = {}, sum = 0;
#pragma unroll
        for (int e = 0; e < N; ++e) {
            if (id + e < vocab) each[e] = measure(row[id + e]);
            sum += each[e];
        }
        const u64 inclusive = before + inclusive_sum(sum);
        const unsigned crosses = __ballot_sync(kFullMask, inclusive > target);
        if (crosses) {
            const int first = __ffs(crosses) - 1;
            u64 running = inclusive - sum;
            int e = 0;
#pragma unroll
            for (int i = 0; i < N - 1; ++i) {
                running += each[i];
                e += running <= target;
            }
            found = __shfl_sync(kFullMask, static_cast<int>(id) + e, first);
            break;
        }
        before = __shfl_sync(kFullMask, inclusive, 31);
    }
    return found;
}

// `target` is worked out from the total.
template <int N, class Measure, class Target>
__device__ __noinline__ int in_order(const float* row, int vocab, Measure measure, Target target, Shared& shared) {
    const Segments segments = Segments::of<N>(vocab);
    sum_segments<N>(row, vocab, segments, measure, shared);
    __syncthreads();
    if (threadIdx.x < 32) {
        const int each = (segments.count + 31) / 32, begin = threadIdx.x * each;
        u64 sum = 0;
        for (int i = begin; i < min(begin + each, segments.count); ++i) sum += shared.segments[i];
        const u64 inclusive = inclusive_sum(sum);
        const u64 wanted = target(__shfl_sync(kFullMask, inclusive, 31));
        const int lane = first_lane(inclusive > wanted);
        int segment = begin;
        u64 before = inclusive - sum;
        while (segment < min(begin + each, segments.count) - 1 && before + shared.segments[segment] <= wanted) {
            before += shared.segments[segment++];
        }
        segment = __shfl_sync(kFullMask, segment, lane);
        before = __shfl_sync(kFullMask, before, lane);
        const int64_t first = int64_t(segment) * segments.units * 32 * N;
        const int token = walk<N>(row, vocab, first, segments.units, measure, before, wanted);
        if (threadIdx.x == 0) shared.token = token;
    }
    __syncthreads();
    return shared.token;
}

}  // namespace dsv4::sample
