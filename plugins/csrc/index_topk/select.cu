// The best `topk` of a row of ordered keys, in ascending order of entries.
//
// A radix select finds the least key that is picked and how many entries with that key are: digit by digit
// from the top, by histograms of the keys that share the digits so far. Then every thread counts what its
// stretch of the row holds of higher and of equal keys, prefix sums turn counts into places, and the
// stretch is written out; of equal keys the first ones. A long row is shared by the blocks of a cluster.
// Rows are read several times, but from the first-level cache.
#include <cooperative_groups.h>

#include "common/numbers.cuh"
#include "common/reduce.cuh"
#include "index_topk/index_topk.h"

namespace dsv4::index_topk {
namespace {

namespace cg = cooperative_groups;

constexpr int kMaxCluster = 8;
constexpr int kShareFrom = 16384;   // entries from which the blocks of a cluster share a row
constexpr int kTopBits = 11;

// Digits of a key from the top: 11 and 5 bits, or 11, 11 and 10.
template <class Key>
struct Digits {
    static constexpr int kBits = 8 * sizeof(Key);
    static constexpr int kLevels = (kBits + kTopBits - 1) / kTopBits;
    static constexpr int kBins = (kLevels - 1 << kTopBits) + (1 << kBits - (kLevels - 1) * kTopBits);

    static __device__ constexpr int shift(int level) { return max(0, kBits - (level + 1) * kTopBits); }
    static __device__ constexpr int bits(int level) { return kBits - level * kTopBits - shift(level); }
};

template <class Key, int kThreads>
struct Shared {
    uint32_t bins[Digits<Key>::kBins];  // level by level
    uint64_t warp_sums[kThreads / 32];
    uint64_t block_sums[kMaxCluster];   // of the cluster's blocks, written by each of them
    uint32_t digit, above;
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

// This thread's stretch of a row: calls visit(key, entry) for each of its entries, in order.
template <class Key>
struct Stretch {
    static constexpr int kKeys = 16 / sizeof(Key);   // of one load
    const uint4* row;
    int begin, end, entries;    // loads; entries of the row

    template <class Visit>
    __device__ __forceinline__ void each(Visit visit) const {
        for (int load = begin; load < end; ++load) {
            const uint4 words = row[load];
            const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
            for (int i = 0; i < kKeys; ++i) {
                const int entry = load * kKeys + i;
                const Key key = sizeof(Key) == 4 ? word[i % 4] : word[i / 2 % 4] >> (16 * (i % 2));
                if (entry < entries) visit(key, entry);
            }
        }
    }
};

// Adds to `bins` the digits at `shift` of keys whose higher bits are those of `prefix`. Runs of one digit
// count once: rows of equal scores would queue up at one bin.
template <class Key>
__device__ void count_digits(const Stretch<Key>& stretch, Key prefix, int shift, int bits, uint32_t* bins) {
    const uint32_t mask = (1u << bits) - 1, higher = ~((uint64_t(1) << (shift + bits)) - 1);
    uint32_t last = 0, run = 0;
    stretch.each([&](Key key, int) {
        if ((key ^ prefix) & higher) return;
        const uint32_t digit = key >> shift & mask;
        if (digit != last && run > 0) {
            atomicAdd(&bins[last], run);
            run = 0;
        }
        last = digit;
        ++run;
    });
    if (run > 0) atomicAdd(&bins[last], run);
}

// The digit of the key that is number `wanted` from the top, and how many keys have a higher one.
template <int kThreads, class Shared>
__device__ void find_digit(const uint32_t* bins, int bits, uint32_t wanted, Shared& shared) {
    const int count = 1 << bits, each = max(1, count / kThreads);
    const int top = count - 1 - int(threadIdx.x) * each;    // this thread's bins go down from it
    uint32_t own = 0;
    for (int i = 0; i < each && top - i >= 0; ++i) own += bins[top - i];
    uint64_t total;
    uint32_t above = sum_before<kThreads>(own, shared.warp_sums, total);
    if (above < wanted && wanted <= above + own) {
        int bin = top;
        while (above + bins[bin] < wanted) above += bins[bin--];
        shared.digit = bin;
        shared.above = above;
    }
    __syncthreads();
}

template <class Key, int kThreads, bool kClusters>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads) kernel(Params p) {
    __shared__ Shared<Key, kThreads> shared;
    const cg::cluster_group cluster = cg::this_cluster();
    const int blocks = kClusters ? cluster.num_blocks() : 1, rank = kClusters ? cluster.block_rank() : 0;
    const int row = blockIdx.x / blocks, token = p.row_begin + row;
    const int visible = p.visible(token);
    int32_t* out = p.out + int64_t(token) * p.topk;
    const bool choose = p.chooses(visible), share = kClusters && choose && visible >= kShareFrom;
    if (!choose || (rank > 0 && !share)) {
        for (int i = threadIdx.x; rank == 0 && i < p.topk; i += kThreads) out[i] = i < visible ? i : -1;
        cudaGridDependencySynchronize();    // no block ends before the scores' launch: what follows may reuse memory
        return;
    }

    const int loads = (visible + Stretch<Key>::kKeys - 1) / Stretch<Key>::kKeys;
    const int threads = kThreads * (share ? blocks : 1);
    const int each = (loads + threads - 1) / threads;
    const int begin = min(loads, (rank * kThreads + int(threadIdx.x)) * each);
    const Key* keys = static_cast<const Key*>(p.scores) + row * p.stride;
    const Stretch<Key> stretch{reinterpret_cast<const uint4*>(keys), begin, min(loads, begin + each), visible};

    for (int i = threadIdx.x; i < Digits<Key>::kBins; i += kThreads) shared.bins[i] = 0;
    if (share) cluster.sync(); else __syncthreads();
    cudaGridDependencySynchronize();    // from here on the scores are there

    Key least = 0;
    uint32_t wanted = p.topk;
#pragma unroll
    for (int level = 0; level < Digits<Key>::kLevels; ++level) {
        const int shift = Digits<Key>::shift(level), bits = Digits<Key>::bits(level);
        uint32_t* bins = shared.bins + (level << kTopBits);
        count_digits(stretch, least, shift, bits, bins);
        const uint32_t* all = bins;
        if (share) {
            __syncthreads();
            uint32_t* first = cluster.map_shared_rank(bins, 0);
            for (int i = threadIdx.x; rank > 0 && i < 1 << bits; i += kThreads) {
                if (bins[i] > 0) atomicAdd(&first[i], bins[i]);
            }
            cluster.sync();
            all = first;
        } else {
            __syncthreads();
        }
        find_digit<kThreads>(all, bits, wanted, shared);
        least |= Key(shared.digit << shift);
        wanted -= shared.above;
    }

    // from here `wanted` is how many entries with the key `least` are picked
    uint32_t higher = 0, equal = 0;
    stretch.each([&](Key key, int) {
        higher += key > least;
        equal += key == least;
    });
    uint64_t total, before = sum_before<kThreads>(uint64_t(higher) << 32 | equal, shared.warp_sums, total);
    if (share) {
        if (threadIdx.x < blocks) *cluster.map_shared_rank(&shared.block_sums[rank], threadIdx.x) = total;
        cluster.sync();
        for (int i = 0; i < rank; ++i) before += shared.block_sums[i];
    }
    higher = before >> 32, equal = uint32_t(before);
    stretch.each([&](Key key, int entry) {
        if (key < least) return;
        const bool ties = key == least;
        if (!ties || equal < wanted) out[higher + min(equal, wanted)] = entry;
        higher += !ties;
        equal += ties;
    });
}

template <class Key, int kThreads, bool kClusters>
void start(const Params& p, int blocks, bool after_scores, cudaStream_t stream) {
    cudaLaunchAttribute attributes[2]{};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = after_scores;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {unsigned(blocks), 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = (p.row_end - p.row_begin) * blocks;
    config.blockDim = kThreads;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = kClusters ? 2 : 1;
    cudaLaunchKernelEx(&config, kernel<Key, kThreads, kClusters>, p);
    check_launch("index_topk select");
}

}  // namespace

void select(const Params& p, bool after_scores, cudaStream_t stream) {
    int blocks = 1;     // as many as few rows leave room for
    while (p.width > kShareFrom && blocks < kMaxCluster && 2 * blocks * (p.row_end - p.row_begin) <= multiprocessors()) {
        blocks *= 2;
    }
    if (!p.rounds) {
        start<uint32_t, 512, false>(p, 1, after_scores, stream);
    } else if (p.width <= 4096) {
        start<uint16_t, 256, false>(p, 1, after_scores, stream);
    } else if (blocks == 1) {
        start<uint16_t, 512, false>(p, 1, after_scores, stream);
    } else {
        start<uint16_t, 1024, true>(p, blocks, after_scores, stream);
    }
}

}  // namespace dsv4::index_topk
