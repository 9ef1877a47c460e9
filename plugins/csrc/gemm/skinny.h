// Few token rows against many weight rows: how the skinny kernels divide the work.
#pragma once
#include "gemm/problem.h"

namespace dsv4::gemm {

constexpr int kWarps = 8;
constexpr int kResident = 2;        // blocks per multiprocessor
constexpr int kSkinnyTokens = 64;   // token rows of one work item, at most
constexpr int kTokenSlots = 20;     // of 16 bytes in shared memory, for one step of one token row

// A work item is `row_warps` tiles of 16 weight rows by at most `max_tokens` token rows. `split` blocks of a
// cluster share its depth, and in each block kWarps / row_warps warps share the block's part, step by step.
struct Shape {
    int token_tiles;    // n-tiles of 8 token rows that the kernel is compiled for: 1, 2, 4 or 8
    int max_tokens;     // of one work item, <= 8 * token_tiles
    int subtiles;       // work items beside one another over token rows
    int row_warps, row_tiles, split;
    int stage_bytes;    // of shared memory for activations: of as many rounds of steps as fit
    int blocks;
    size_t shared_bytes;
};

struct SkinnyParams {
    Problem problem;
    Shape shape;
};

// `ring_bytes` of a block's shared memory hold weights.
Shape skinny_shape(const Problem& problem, size_t ring_bytes);

void skinny_bf16(const Problem& problem, cudaStream_t stream);
void skinny_e4m3(const Problem& problem, cudaStream_t stream);
void skinny_e2m1(const Problem& problem, cudaStream_t stream);

}  // namespace dsv4::gemm
