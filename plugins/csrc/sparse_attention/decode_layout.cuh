// Shared memory of a block that attends few query tokens. Eight warps.
#pragma once

#include "sparse_attention/decode_plan.h"

namespace dsv4::sparse_attention {

constexpr int kDecodeThreads = 256, kDecodeWarps = 8;
constexpr int kRowBytes = kDecodeDim * 2;  // of a query or key in shared memory, bf16
constexpr int kNope = kDecodeDim - 2 * kDecodeRopePairs;
constexpr int kWarpChannels = kDecodeDim / kDecodeWarps;

// Where 16 bytes of a row lie in a tile of rows: eight rows below each other hit different banks.
__device__ __forceinline__ uint32_t swizzled(int row, int chunk) {
    return row * kRowBytes + ((chunk ^ (row & 7)) << 4);
}

// The address `chunks` to the right of a swizzled address whose own chunk, modulo 8, has no bit in common with
// them. Takes one instruction, and no register where `chunks` is known.
__device__ __forceinline__ uint32_t moved(uint32_t address, int chunks) {
    return (address ^ ((chunks & 7) << 4)) + ((chunks & ~7) << 4);
}

// Bytes of a key as it lies in its page: the row, and its scales apart.
template <Format F>
struct Raw {
    static constexpr int kRow = F == Format::kFp8 ? kNope + 4 * kDecodeRopePairs : kRowBytes;
    static constexpr int kScales = F == Format::kFp8 ? 8 : 0;
    static constexpr int kFresh = F == Format::kFp8 ? kRowBytes : 0;  // a row of activations, where it is no entry
};

// Where things lie, in bytes.
template <Format F, int Heads, int Tile>
struct Layout {
    static constexpr int kKeys = Tile / kDecodeWarps;  // of a warp
    static constexpr int kSplitHeads = Heads == 64 ? 2 : 1;
    static constexpr int kSplitKeys = Tile / 32;
    static constexpr int kSplitChannels = kDecodeWarps / (kSplitHeads * kSplitKeys);
    static constexpr int kScoreStride = Tile + 8, kProbStride = Tile + 8;  // elements; rows hit different banks

    static constexpr int kQuery = 0;
    static constexpr int kTile = kQuery + Heads * kRowBytes;
    static constexpr int kRaw = kTile + Tile * kRowBytes;
    static constexpr int kScales = kRaw + Tile * Raw<F>::kRow;
    static constexpr int kFresh = kScales + Tile * Raw<F>::kScales;          // a row a warp
    static constexpr int kScores = kFresh + kDecodeWarps * Raw<F>::kFresh;   // fp32 [parts][heads][keys]
    static constexpr int kProbs = kScores + kSplitChannels * Heads * kScoreStride * 4;
    static constexpr int kHeadNumbers = kProbs + Heads * kProbStride * 2;    // a float a head
    static constexpr int kAngles = kHeadNumbers + Heads * 4;
    static constexpr int kSeen = kAngles + kDecodeRopePairs * 8;             // a byte a key
    static constexpr int kBytes = kSeen + Tile;
};

}  // namespace dsv4::sparse_attention
