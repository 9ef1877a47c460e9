#pragma once
#include "gemm/problem.h"

namespace dsv4::experts {

constexpr int kChunk = 256;         // pairs that one block orders at a time
constexpr int kMaxLocal = 4096;     // local experts: their counts lie in shared memory

// A pair is one pick of one token: pair = token * picks + pick. Pairs whose expert lives here get packed rows,
// sorted by local expert and, within one, by pair.
struct Routing {
    const int32_t* expert_ids;  // [pairs]
    const float* weights;       // [pairs]
    const int32_t* expert_map;  // [experts]: the local expert, -1 where it lives elsewhere
    int pairs, picks, experts, local;

    int32_t* place;             // [pairs]: the packed row, -1 for none
    int32_t* gather;            // [packed rows]: the token
    float* row_weights;         // [packed rows]
    gemm::Tile* tiles;          // [max_tiles]
    int32_t* num_tiles;
    int tile_tokens;

    int32_t* counts;            // [blocks, local]: pairs of each expert in each block's share
    int blocks, share;          // of the pairs
};

// How many blocks share the work, and so the size of `counts`; 1: one launch does all.
int routing_blocks(int pairs);
int most_routing_blocks(int pairs);  // for at most so many pairs

void route(const Routing& routing, cudaStream_t stream);

struct Combine {
    const void* y;              // [packed rows, width]
    const int32_t* place;       // [tokens * picks]
    float* out;                 // [tokens, width]: the sum over a token's picks, in their order
    int64_t tokens;
    int picks, width;
    int parts;                  // blocks that share one token
};

void combine(const Combine& params, int y_dtype, cudaStream_t stream);

}  // namespace dsv4::experts
