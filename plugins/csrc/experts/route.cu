// Orders any number of pairs in two launches: each block counts its share, then each block finds out from all
// counts where its pairs belong.
#include <algorithm>

#include "common/dependent_launch.cuh"
#include "common/reduce.cuh"
#include "experts/order.cuh"

namespace dsv4::experts {

void route_few(const Routing& r, cudaStream_t stream);

namespace {

constexpr int kMaxBlocks = 128;

__global__ void __launch_bounds__(kChunk) count(Routing r) {
    extern __shared__ int counts[];
    for (int e = threadIdx.x; e < r.local; e += kChunk) counts[e] = 0;
    wait_for_previous();
    allow_next();
    __syncthreads();
    const int end = min((blockIdx.x + 1) * r.share, r.pairs);
    for (int pair = blockIdx.x * r.share + threadIdx.x; pair < end; pair += kChunk) {
        const int local = local_expert(r, pair);
        if (local != kNowhere) atomicAdd(&counts[local], 1);
    }
    __syncthreads();
    for (int e = threadIdx.x; e < r.local; e += kChunk) r.counts[blockIdx.x * r.local + e] = counts[e];
}

// Packed rows in the low half, tiles in the high half: both are summed at once.
using RowsAndTiles = unsigned long long;

__device__ __forceinline__ RowsAndTiles both(int rows, int tile_tokens) {
    return RowsAndTiles((rows + tile_tokens - 1) / tile_tokens) << 32 | unsigned(rows);
}

// What the threads before this one have; `all` is what the block has.
__device__ RowsAndTiles sum_before(RowsAndTiles mine, RowsAndTiles& all) {
    __shared__ RowsAndTiles warps[kChunk / 32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    RowsAndTiles sum = mine;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        const RowsAndTiles other = __shfl_up_sync(kFullMask, sum, offset);
        if (lane >= offset) sum += other;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    all = 0;
    RowsAndTiles before = sum - mine;
#pragma unroll
    for (int w = 0; w < kChunk / 32; ++w) {
        if (w < warp) before += warps[w];
        all += warps[w];
    }
    return before;
}

// Sets `next` to the packed row of each expert's first pair in this block's share; block 0 writes the tiles.
__device__ void find_rows(const Routing& r, int* next, int* totals) {
    for (int e = threadIdx.x; e < r.local; e += kChunk) {
        int before = 0, total = 0;
#pragma unroll 8
        for (int b = 0; b < r.blocks; ++b) {
            const int here = r.counts[b * r.local + e];
            total += here;
            if (b < blockIdx.x) before += here;
        }
        next[e] = before;
        totals[e] = total;
    }
    __syncthreads();
    const int per_thread = (r.local + kChunk - 1) / kChunk;
    const int begin = min(int(threadIdx.x) * per_thread, r.local), end = min(begin + per_thread, r.local);
    RowsAndTiles mine = 0, all;
    for (int e = begin; e < end; ++e) mine += both(totals[e], r.tile_tokens);
    RowsAndTiles first = sum_before(mine, all);
    for (int e = begin; e < end; ++e) {
        const int row = static_cast<int>(first), tile = static_cast<int>(first >> 32);
        next[e] += row;
        for (int done = 0; blockIdx.x == 0 && done < totals[e]; done += r.tile_tokens) {
            r.tiles[tile + done / r.tile_tokens] = {e, row + done, min(r.tile_tokens, totals[e] - done)};
        }
        first += both(totals[e], r.tile_tokens);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) *r.num_tiles = static_cast<int>(all >> 32);
}

__global__ void __launch_bounds__(kChunk) place(Routing r) {
    extern __shared__ int next[];  // [local], then [local] of scratch
    __shared__ alignas(16) int experts[kChunk];
    wait_for_previous();
    allow_next();
    find_rows(r, next, next + r.local);
    const int end = min((blockIdx.x + 1) * r.share, r.pairs);
    for (int start = blockIdx.x * r.share; start < end; start += kChunk) {
        const int pair = start + threadIdx.x;
        const int mine = pair < end ? local_expert(r, pair) : kNowhere;
        experts[threadIdx.x] = mine;
        __syncthreads();  // also behind the last use of `next` by others
        const Standing s = standing(experts, kChunk, threadIdx.x);
        const bool here = mine != kNowhere;
        if (pair < end) put(r, pair, here ? next[mine] + s.before : -1);
        __syncthreads();
        if (here && s.before == s.same - 1) next[mine] += s.same;
    }
}

}  // namespace

int routing_blocks(int pairs) {
    const int chunks = ceil_div(pairs, kChunk);
    const int rounds = ceil_div(chunks, kMaxBlocks);
    return rounds == 0 ? 0 : ceil_div(chunks, rounds);
}

int most_routing_blocks(int pairs) { return std::min(ceil_div(pairs, kChunk), kMaxBlocks); }

void route(const Routing& routing, cudaStream_t stream) {
    Routing r = routing;
    r.blocks = routing_blocks(r.pairs);
    if (r.blocks == 1) return route_few(r, stream);
    r.share = ceil_div(ceil_div(r.pairs, kChunk), r.blocks) * kChunk;
    launch_dependent("experts.count", count, r.blocks, kChunk, r.local * sizeof(int), stream, r);
    launch_dependent("experts.place", place, r.blocks, kChunk, 2 * r.local * sizeof(int), stream, r);
}

}  // namespace dsv4::experts
