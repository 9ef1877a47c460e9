// Which tiles a block of the `wide` kernel makes, how weight rows lie in a tile, and its shared memory.
#pragma once

#include "gemm/wide.h"
#include "gemm/wide_decode.cuh"

namespace dsv4::gemm {

constexpr int kRaster = 8;  // token tiles that take turns, so that weights stay in the L2 cache

struct WideTile {
    int group, begin, count, row_block;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ int count_tiles(const WideParams& p) {
    const int token_tiles = p.tiles ? min(*p.num_tiles, p.max_tiles) : p.groups * p.token_tiles;
    return token_tiles * p.row_blocks;
}

__device__ __forceinline__ WideTile tile_at(const WideParams& p, int index) {
    if (p.tiles) {
        const Tile tile = p.tiles[index / p.row_blocks];
        return {tile.group, tile.begin, min(tile.count, p.tile_tokens), index % p.row_blocks};
    }
    const int of_group = p.token_tiles * p.row_blocks;
    const int group = index / of_group, within = index % of_group;
    const int first = within / (kRaster * p.row_blocks) * kRaster;
    const int turns = min(kRaster, p.token_tiles - first), turn = within - first * p.row_blocks;
    const int begin = (first + turn % turns) * p.tile_tokens;
    return {group, begin, min(p.tokens - begin, p.tile_tokens), turn / turns};
}

#endif

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// The stages of a tile that this block does: whole blocks of 128 inputs, two stages each.
struct StageRange {
    int first, end;
};

template <bool kSplits>
__device__ __forceinline__ StageRange stage_range(const WideParams& p) {
    const int blocks = p.depth / 128;
    if constexpr (!kSplits) return {0, 2 * blocks};
    const int rank = p.splits > 1 ? cluster_rank() : 0;
    return {blocks * rank / p.splits * 2, blocks * (rank + 1) / p.splits * 2};
}

#endif

// A block has 8 * kBlocks units of 16 rows, kBlocks neighbours for each multiplying warp. Rows g of a warp's
// units and rows g + 8, which one thread accumulates, are neighbours in the weight, so that it stores them at
// once; for SwiGLU they are a gate row and its up row.
template <int kBlocks>
struct RowMap {
    static constexpr int kRows = 128 * kBlocks;

    bool swiglu;
    int first, limit, up;  // of gate rows and how far the up rows are, or of all rows

    __device__ RowMap(const WideParams& p, int row_block)
        : swiglu(p.swiglu), first(row_block * (p.swiglu ? kRows / 2 : kRows)),
          limit(p.swiglu ? p.rows / 2 : p.rows), up(p.swiglu ? p.rows / 2 : 0) {}

    // The row in the weight, without `up`, that is row `m` of the tile.
    __device__ int base(int m) const {
        const int warp = m / (16 * kBlocks), block = m / 16 % kBlocks, half = m / 8 % 2, g = m % 8;
        return swiglu ? first + (warp * 8 + g) * kBlocks + block
                      : first + (warp * 8 + g) * 2 * kBlocks + 2 * block + half;
    }
    __device__ int up_of(int m) const { return m / 8 % 2 ? up : 0; }
};

template <Weight kFormat, int kBlocks>
struct Shared {
    static constexpr int kRows = RowMap<kBlocks>::kRows;
    // in a stage: x, then weights, then four scale bytes of each row
    static constexpr int kWeights = kWideTokens * kLine;
    static constexpr int kScales = kWeights + kRows * stage_bytes(kFormat);
    static constexpr int kUsed = kScales + (kFormat == Weight::kE2M1 ? kRows * 4 : 0);
    static constexpr int kStage = (kUsed + 1023) / 1024 * 1024;
    static constexpr int kTokens = 2 * kWideTokens * 8;  // both warpgroups' output rows and weights
    // what blocks that share a tile's depth show each other: a multiplying thread's sums
    static constexpr bool kSplits = kBlocks == 1;
    static constexpr int kExchange = kSplits ? 256 * kWideSplitTokens / 2 * 4 : 0;
    static constexpr int kMost = (227 * 1024 - 1024 - kTokens - kExchange - 256) / kStage;
    static constexpr int kStages = kMost < 8 ? kMost : 8;
    static constexpr int kExchangeAt = kStages * kStage + kTokens;
    static constexpr int kBarriers = kExchangeAt + kExchange;
    static constexpr int kBytes = 1024 + kBarriers + 16 * kStages;  // 1,024 for alignment
};

}  // namespace dsv4::gemm
