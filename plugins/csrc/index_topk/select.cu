// The best `topk` of a row of ordered keys, in ascending order of entries.
//
// A radix select finds the least key that is picked and how many entries with that key are: digit by digit
// from the top, by histograms of the keys that share the digits so far. Then every thread counts what its
// stretch of the row holds of higher and of equal keys, prefix sums turn counts into places, and the
// stretch is written out; of equal keys the first ones. A long row is shared by the blocks of a cluster.
// Rows are read several times, but from the first-level cache.
#include <cooperative_groups.h>

#include "common/dependent_launch.cuh"
#include "index_topk/digits.cuh"

namespace dsv4::index_topk {
namespace {

namespace cg = cooperative_groups;

constexpr int kMaxCluster = 8;
constexpr int kShareFrom = 16384;   // entries from which the blocks of a cluster share a row
constexpr int kSampleFrom = 3;      // loads of a thread from which the first ones are a sample

constexpr int top_bits(int threads) { return threads > 256 ? 12 : 11; }

template <class Key, int kThreads, bool kClusters>
struct Shared {
    using Levels = Digits<Key, top_bits(kThreads)>;
    alignas(16) uint32_t bins[Levels::kBins];                       // level by level
    alignas(16) uint32_t merged[kClusters ? Levels::kBins : 4];     // in the first block: sums over the cluster
    uint64_t warp_sums[kThreads / 32];
    uint64_t block_sums[kMaxCluster];   // of the cluster's blocks, written by each of them
    Found found;
};

// One row, by one block or by all blocks of a cluster (`share`).
template <class Key, int kThreads, bool kClusters>
struct Selection {
    using Levels = typename Shared<Key, kThreads, kClusters>::Levels;
    Shared<Key, kThreads, kClusters>& shared;
    cg::cluster_group cluster;
    bool share;
    Stretch<Key> stretch;
    Key least = 0;          // of the picked keys, as far as its digits are known
    uint32_t wanted;        // entries that are still to be picked among keys with these digits

    __device__ void sync() const {
        if (share) cluster.sync(); else __syncthreads();
    }

    // A digit that the last pick has at least: as many keys of a part of the row already do. Most keys are
    // below it, and need no counting. Counts that part, and leaves the rest in `stretch`.
    __device__ uint32_t lower_bound(DigitCounter<Levels::shift(0), Levels::bits(0)>& counter) {
        Stretch<Key> sample = stretch;
        sample.end = min(sample.begin + 1, sample.end);
        stretch.begin = sample.end;
        if (threadIdx.x == 0) shared.found.digit = 0;
        sample.each([&](Key key, int) { counter.add(key); });
        counter.flush();
        __syncthreads();
        find_digit<kThreads, Levels::bits(0)>(counter.bins, wanted, shared.warp_sums, shared.found);
        return shared.found.digit;
    }

    // A level's bins from `bound` on, added up over the cluster in its first block.
    __device__ uint32_t* merge(int first, int bound, int count) const {
        uint32_t* merged = cluster.map_shared_rank(shared.merged + first, 0);
        for (int i = bound + threadIdx.x; i < count; i += kThreads) {
            if (shared.bins[first + i] > 0) atomicAdd(&merged[i], shared.bins[first + i]);
        }
        cluster.sync();
        return merged;
    }

    template <int kLevel>
    __device__ void next_digit(bool sampled) {
        constexpr int kShift = Levels::shift(kLevel), kBits = Levels::bits(kLevel);
        constexpr int kFirst = kLevel * (1 << Levels::bits(0));
        uint32_t* bins = shared.bins + kFirst;
        uint32_t bound = 0;
        DigitCounter<kShift, kBits> counter{bins};
        if constexpr (kLevel > 0) {     // keys with the digits so far
            constexpr uint32_t kHigher = ~((1u << (kShift + kBits)) - 1);
            stretch.each_from(least, [&](Key key, int) {
                if (((key ^ least) & kHigher) == 0) counter.add(key);
            });
        } else if (sampled) {
            const int begin = stretch.begin;
            bound = lower_bound(counter);
            stretch.each_from(Key(bound << kShift), [&](Key key, int) { counter.add(key); });
            stretch.begin = begin;
        } else {
            stretch.each([&](Key key, int) { counter.add(key); });
        }
        counter.flush();
        __syncthreads();
        if constexpr (kClusters) {
            if (share) bins = merge(kFirst, bound, 1 << kBits);
        }
        find_digit<kThreads, kBits>(bins, wanted, shared.warp_sums, shared.found);
        least |= Key(shared.found.digit << kShift);
        wanted -= shared.found.above;
    }

    // With `least` and `wanted` final: the latter is how many entries with just that key are picked.
    __device__ void write(int32_t* out) {
        uint32_t higher = 0, equal = 0;
        stretch.each_from(least, [&](Key key, int) {
            higher += key > least;
            equal += key == least;
        });
        uint64_t total, before = sum_before<kThreads>(uint64_t(higher) << 32 | equal, shared.warp_sums, total);
        if (share) {
            const int rank = cluster.block_rank();
            if (threadIdx.x < cluster.num_blocks()) {
                *cluster.map_shared_rank(&shared.block_sums[rank], threadIdx.x) = total;
            }
            cluster.sync();
            for (int i = 0; i < rank; ++i) before += shared.block_sums[i];
        }
        higher = before >> 32, equal = uint32_t(before);
        stretch.each_from(least, [&](Key key, int entry) {
            const bool ties = key == least;
            if (!ties || equal < wanted) out[higher + min(equal, wanted)] = entry;
            higher += !ties;
            equal += ties;
        });
    }
};

template <class Key, int kThreads, bool kClusters>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads) kernel(Params p) {
    __shared__ Shared<Key, kThreads, kClusters> shared;
    const cg::cluster_group cluster = cg::this_cluster();
    const int blocks = kClusters ? cluster.num_blocks() : 1, rank = kClusters ? cluster.block_rank() : 0;
    const int row = blockIdx.x / blocks, token = p.row_begin + row;
    const int visible = p.visible(token);
    int32_t* out = p.out + int64_t(token) * p.topk;
    const bool choose = p.chooses(visible), share = kClusters && choose && visible >= kShareFrom;
    if (!choose || (rank > 0 && !share)) {
        for (int i = threadIdx.x; rank == 0 && i < p.topk; i += kThreads) out[i] = i < visible ? i : -1;
        wait_for_previous();    // no block ends before the scores' launch: what follows may reuse memory
        return;
    }
    const int loads = (visible + Stretch<Key>::kKeys - 1) / Stretch<Key>::kKeys;
    const int threads = kThreads * (share ? blocks : 1);
    const int each = (loads + threads - 1) / threads;
    const int begin = min(loads, (rank * kThreads + int(threadIdx.x)) * each);
    const Key* keys = static_cast<const Key*>(p.scores) + row * p.stride;
    const Stretch<Key> stretch{reinterpret_cast<const uint4*>(keys), begin, min(loads, begin + each), visible};
    Selection<Key, kThreads, kClusters> selection{shared, cluster, share, stretch, 0, uint32_t(p.topk)};
    using Levels = typename Selection<Key, kThreads, kClusters>::Levels;

    for (int i = threadIdx.x; i < Levels::kBins; i += kThreads) {
        shared.bins[i] = 0;
        if (kClusters) shared.merged[i] = 0;
    }
    selection.sync();
    wait_for_previous();    // from here on the scores are there
    selection.template next_digit<0>(each >= kSampleFrom);
    selection.template next_digit<1>(false);
    if constexpr (Levels::kLevels > 2) selection.template next_digit<2>(false);
    selection.write(out);
}

template <class Key, int kThreads, bool kClusters>
void start(const Params& p, int blocks, bool after_scores, cudaStream_t stream) {
    const int64_t count = int64_t(p.row_end - p.row_begin) * blocks;
    launch_kernel("index_topk select", kernel<Key, kThreads, kClusters>, {count, kThreads, 0, blocks, after_scores}, stream,
                  p);
}

}  // namespace

void select(const Params& p, bool after_scores, cudaStream_t stream) {
    int blocks = 1;     // as many as few rows leave room for
    const int room = device().multiprocessors / (p.row_end - p.row_begin);
    while (p.width > kShareFrom && blocks < kMaxCluster && 2 * blocks <= room) {
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
