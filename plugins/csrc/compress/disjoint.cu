// Long groups of tokens without the previous one: half a megabyte of terms an entry, spread over a cluster.
//
// A block of the cluster has 64 channels, four a lane in its 16 groups of 16 lanes. A lane group takes eight
// terms, so that all terms are in registers after one round of loads. Blocks exchange only their sums of
// squares for the norm; 64 channels are also one scale block of an fp8 entry. A cluster looks after every
// n-th row, n odd: rows that complete groups lie 128 apart in a prefill, so they fall to different clusters.
#include <cooperative_groups.h>

#include "common/cluster.cuh"
#include "common/dependent_launch.cuh"
#include "compress/finish.cuh"

namespace dsv4::compress {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kRatio = 128, kWidth = 512, kBlocks = 8;
constexpr int kChannels = kWidth / kBlocks;    // of a block
constexpr int kGroup = kChannels / 4;          // lanes of a lane group
constexpr int kTerms = 8;                      // of a lane group
constexpr int kLookAhead = 4;                  // times 32 rows whose slots are asked for at once
static_assert(kTerms * (kThreads / kGroup) == kRatio && kGroup * 2 == 32);

struct Shared {
    float4 peak[kWarps][kGroup], total[kWarps][kGroup], sum[kWarps][kGroup];
    float squares[2][kBlocks];   // of all blocks; two, so that one cluster barrier an entry is enough
};

__device__ __forceinline__ float4 vector(const float (&x)[4]) { return {x[0], x[1], x[2], x[3]}; }

__device__ __forceinline__ void add(float (&x)[4], float4 more) {
    x[0] += more.x, x[1] += more.y, x[2] += more.z, x[3] += more.w;
}

__device__ __forceinline__ void raise(float (&x)[4], float4 to) {
    x[0] = fmaxf(x[0], to.x), x[1] = fmaxf(x[1], to.y), x[2] = fmaxf(x[2], to.z), x[3] = fmaxf(x[3], to.w);
}

// A lane group's share of the terms of an entry, four channels a lane.
struct Terms {
    float values[kTerms][4], gates[kTerms][4];

    __device__ __forceinline__ void load(const Params& p, const Row& own, int row, int channel) {
        // lanes 0-7 and 8-15 of a group know both where its terms lie
        const int index = threadIdx.x / kGroup * kTerms + threadIdx.x % kTerms;
        const int token = own.position - (kRatio - 1) + index;
        const Term term = term_of(p, own, row, token, older_page(p, own, token));
#pragma unroll
        for (int j = 0; j < kTerms; ++j) {
            const float* source = shuffled(term.values, j, kTerms) + channel;
            load_once(source, values[j]);
            load_once(source + kWidth, gates[j]);
        }
        __syncwarp();  // all loads are on their way before the first is waited for
#pragma unroll
        for (int j = 0; j < kTerms; ++j) {
            add_bias(p, __shfl_sync(kFullMask, term.bias, j, kTerms), channel, gates[j]);
        }
    }

    // The largest gates of the entry.
    __device__ __forceinline__ void peaks(Shared& shared, float (&out)[4]) const {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            out[c] = gates[0][c];
#pragma unroll
            for (int j = 1; j < kTerms; ++j) out[c] = fmaxf(out[c], gates[j][c]);
            out[c] = fmaxf(out[c], __shfl_xor_sync(kFullMask, out[c], kGroup));
        }
        if (lane < kGroup) shared.peak[warp][lane] = vector(out);
        __syncthreads();
#pragma unroll
        for (int other = 0; other < kWarps; ++other) raise(out, shared.peak[other][lane % kGroup]);
    }

    // The softmax-weighted sum of the entry, in the first warp, in both of its halves. Nothing but missing
    // terms gives NaN.
    __device__ __forceinline__ void pool(Shared& shared, float (&out)[4]) const {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        float peak[4], total[4] = {}, sum[4] = {};
        peaks(shared, peak);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
#pragma unroll
            for (int j = 0; j < kTerms; ++j) {
                const float weight = softmax_weight(gates[j][c] - peak[c]);
                total[c] += weight;
                sum[c] = fmaf(values[j][c], weight, sum[c]);
            }
            total[c] += __shfl_xor_sync(kFullMask, total[c], kGroup);
            sum[c] += __shfl_xor_sync(kFullMask, sum[c], kGroup);
        }
        if (lane < kGroup) {
            shared.total[warp][lane] = vector(total);
            shared.sum[warp][lane] = vector(sum);
        }
        __syncthreads();
        if (warp > 0) return;
#pragma unroll
        for (int other = 1; other < kWarps; ++other) {
            add(total, shared.total[other][lane % kGroup]);
            add(sum, shared.sum[other][lane % kGroup]);
        }
#pragma unroll
        for (int c = 0; c < 4; ++c) out[c] = __fdividef(sum[c], total[c]);
    }
};

// The entry that `row` completes, the `made`-th of the cluster.
__device__ __forceinline__ void make_entry(const Params& p, const Row& own, int page, int row, int made,
                                           Shared& shared) {
    const int rank = blockIdx.x % kBlocks, lane = threadIdx.x % 32, channel = rank * kChannels + lane % kGroup * 4;
    float x[4];
    {
        Terms terms;
        terms.load(p, own, row, channel);
        terms.pool(shared, x);
    }
    if (made == 0) cluster_wait();  // for the announcements
    if (threadIdx.x >= 32) {
        cluster_arrive();
        return cluster_wait();
    }
    const Channels channels = channels_of(p, channel, own.position);
    round_act(p, x);
    const float sum = warp_sum<kGroup>(squares(x));
    float* all = shared.squares[made % 2];
    if (lane < kBlocks) cooperative_groups::this_cluster().map_shared_rank(all, lane)[rank] = sum;
    cluster_arrive();
    cluster_wait();  // also: for the others, the first warp is through with what they overwrite next
    float total = 0;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) total += all[block];
    const EntryPlace to = lane < kGroup ? entry_place(p, own, page) : EntryPlace{nullptr, nullptr};
    finish(p, to, channels, total / kWidth, x);
}

// Copies the block's channels of the cluster's rows to their state, a row a warp: values in the first half of
// the warp, gates in the other. Lane i knows where row first + i * clusters goes.
__device__ __forceinline__ void keep(const Params& p, float* state, int position, int first, int clusters) {
    const int rank = blockIdx.x % kBlocks, lane = threadIdx.x % 32, warp = threadIdx.x / 32, half = lane / kGroup;
    const int channel = rank * kChannels + lane % kGroup * 4, at = half * kWidth + channel;
    float x[32 / kWarps][4];
#pragma unroll
    for (int i = 0; i < 32 / kWarps; ++i) {
        const int row = min(first + (i * kWarps + warp) * clusters, p.step.num_tokens - 1);
        load_once(p.kv_gate + int64_t(row) * 2 * kWidth + at, x[i]);
    }
#pragma unroll
    for (int i = 0; i < 32 / kWarps; ++i) {
        const int from = i * kWarps + warp, bias = __shfl_sync(kFullMask, position, from) % kRatio;
        float* to = shuffled(state, from);
        if (half) add_bias(p, bias, channel, x[i]);
        if (to) store(to + at, x[i]);
    }
}

// 32 rows of the cluster from `first` on, one a lane, the same in every warp; returns how many entries it has
// made by then.
__device__ __forceinline__ int look_after(const Params& p, int first, int made, Shared& shared) {
    const int clusters = p.spread;
    const Row own = row_of(p, first + threadIdx.x % 32 * clusters);
    const int to_page = entry_page(p, own), state_page = kept_page(p, own);
    float* state = state_row(p, state_page, own.state_slot);
    wait_for_previous();  // what comes before is older than the kernel ahead, which makes kv_gate
    allow_next();
    if (__any_sync(kFullMask, state != nullptr)) keep(p, state, own.position, first, clusters);
    for (unsigned left = __ballot_sync(kFullMask, p.pool.has(to_page)); left; left &= left - 1) {
        const int from = __ffs(left) - 1;
        const auto of_row = [&](int x) { return __shfl_sync(kFullMask, x, from); };
        const Row row = {of_row(own.position), of_row(own.table_row), of_row(own.start), of_row(own.slot), -1};
        make_entry(p, row, of_row(to_page), first + from * clusters, made++, shared);
    }
    return made;
}

// Bit i: whether there is anything to do for the i-th 32 rows of the cluster from `first` on.
__device__ __forceinline__ unsigned busy(const Params& p, int first) {
    unsigned found = 0;
#pragma unroll
    for (int i = 0; i < kLookAhead; ++i) {
        const int row = first + (i * 32 + threadIdx.x % 32) * p.spread;
        int slots = -1;  // stays negative if both are
        if (row < p.step.num_tokens) slots = p.slots[row] & p.state_slots[row];
        found |= unsigned(__any_sync(kFullMask, slots >= 0)) << i;
    }
    return found;
}

__global__ void __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(kThreads, 2) kernel(Params p) {
    __shared__ Shared shared;
    cluster_arrive_relaxed();  // a block may touch another's shared memory once all have come this far
    const int stride = 32 * p.spread;
    int made = 0;
    for (int first = blockIdx.x / kBlocks; first < p.step.num_tokens; first += kLookAhead * stride) {
        for (unsigned left = busy(p, first); left; left &= left - 1) {
            made = look_after(p, first + (__ffs(left) - 1) * stride, made, shared);
        }
    }
    wait_for_previous();  // for those with nothing to do
    if (made == 0) cluster_wait();
}

// Few where few rows complete a group anyway, and no more than are resident at once.
int clusters_for(int tokens) {
    const int most = device().multiprocessors * 2 / kBlocks * 7 / 8 | 1;
    return min(min(tokens, 8) + max(tokens - 8, 0) / 4 | (tokens > 8), most);
}

}  // namespace

void disjoint(const Params& p, cudaStream_t stream) {
    DSV4_REQUIRE(p.ratio == kRatio && p.width == kWidth && !p.hadamard,
                 "groups of %d tokens and %d channels that do not overlap; expected %d and %d", p.ratio, p.width,
                 kRatio, kWidth);
    Params dealt = p;
    dealt.spread = clusters_for(p.step.num_tokens);
    launch_dependent("compress", kernel, dealt.spread * kBlocks, kThreads, 0, stream, dealt);
}

}  // namespace dsv4::compress
