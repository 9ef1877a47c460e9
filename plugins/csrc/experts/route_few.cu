// Orders at most kChunk pairs in one block: every pair counts who comes before it.
#include "common/dependent_launch.cuh"
#include "experts/order.cuh"

namespace dsv4::experts {
namespace {

__global__ void __launch_bounds__(kChunk) kernel(Routing r) {
    __shared__ alignas(16) int experts[kChunk];
    __shared__ unsigned starts[kChunk / 32];  // one bit a packed row: a tile begins there
    const int pair = threadIdx.x;
    if (pair * 32 < r.experts) {  // on its way while the ids are made
        asm volatile("prefetch.global.L2 [%0];" ::"l"(r.expert_map + pair * 32));
    }
    wait_for_previous();
    allow_next();
    const int mine = pair < r.pairs ? local_expert(r, pair) : kNowhere;
    experts[pair] = mine;
    if (pair < kChunk / 32) starts[pair] = 0;
    __syncthreads();

    const Standing s = standing(experts, blockDim.x, pair);
    const int row = s.less + s.before;
    const bool here = mine != kNowhere;
    const bool starts_tile = here && s.before % r.tile_tokens == 0;
    if (pair < r.pairs) put(r, pair, here ? row : -1);
    if (starts_tile) atomicOr(&starts[row / 32], 1u << row % 32);
    __syncthreads();

    int tile = 0, all = 0;
#pragma unroll
    for (int word = 0; word < kChunk / 32; ++word) {
        const unsigned bits = starts[word];
        all += __popc(bits);
        if (word < row / 32) tile += __popc(bits);
        if (word == row / 32) tile += __popc(bits & ((1u << row % 32) - 1));
    }
    if (starts_tile) r.tiles[tile] = {mine, row, min(r.tile_tokens, s.same - s.before)};
    if (pair == 0) *r.num_tiles = all;
}

}  // namespace

void route_few(const Routing& r, cudaStream_t stream) {
    launch_dependent("experts.route_few", kernel, 1, ceil_div(r.pairs, 32) * 32, 0, stream, r);
}

}  // namespace dsv4::experts
