// A tile of tokens in a block's shared memory: where things lie, how they come, and work row by row.
#pragma once

#include "common/reduce.cuh"
#include "mhc/send.cuh"
#include "mhc/mix.cuh"

namespace dsv4::mhc {

constexpr int kBlocks = 16;  // of a cluster
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kSums = 26;    // 24 dot products, the squares; even, for pairs
constexpr int kAside = 24;   // tokens of a block that wait for Sinkhorn, which is slow for one and as slow for many

// Chunks: 32 channels each, of the half stream that a warp projects. MTiles: 16 tokens each.
template <int Chunks, int MTiles, bool Post>
struct Layout {
    static constexpr int kMTiles = MTiles;
    static constexpr int kTile = 16 * MTiles;                // tokens
    static constexpr int kTokens = kTile / kWarps;           // of a warp
    static constexpr int kChannels = 64 * Chunks;            // of a block
    static constexpr int kOctets = (kChannels / 8 + 31) / 32;  // packs of 8 channels a lane has of a row
    static constexpr int kSlice = kChannels * sizeof(bf16);  // bytes of one stream of a token
    static constexpr int kRow = kStreams * kSlice + 64;      // of a token; 64 more: neighbours in other banks
    static constexpr int kPostAt = kTile * kRow;
    static constexpr int kCombAt = kPostAt + kTile * kStreams * 4;
    static constexpr int kStage = Post ? kCombAt + kTile * kStreams * kStreams * 4 : kPostAt;
    static constexpr int kLowBytes = Chunks * 6 * kThreads * 8;
    static constexpr int kBytes = 2 * kStage + kLowBytes + kWarps * kTile * kSums * 4;
    static constexpr bool kPost = Post;

    // Whether this lane has an octet `o` of a row: channels (o * 32 + lane) * 8 and on.
    __device__ __forceinline__ static bool has(int o) {
        return (o + 1) * 256 <= kChannels || (o * 32 + threadIdx.x % 32) * 8 < kChannels;
    }
};

template <class L>
struct Exchange {
    static constexpr int kOthers = kMix - kStreams;
    static constexpr int kMixBytes = kBlocks * (L::kTile * (kStreams + 1) + L::kMTiles * kOthers) * 4;
    static constexpr int kSquareBytes = kBlocks * L::kTile * 4;

    // of this block's channels, for all blocks: dot products with the rows of pre, and the squares
    alignas(16) float pre_sums[L::kTile][kStreams + 1];
    alignas(16) float others[L::kTile][kOthers];  // for the token's block: those with the rows of post and comb
    alignas(16) float x_squares[L::kTile];        // for all blocks
    // what the blocks sent
    alignas(16) float pre_sums_of[kBlocks][L::kTile][kStreams + 1];
    alignas(16) float others_of[kBlocks][L::kMTiles][kOthers];
    alignas(16) float x_squares_of[kBlocks][L::kTile + 4];  // 4 more: lanes read down a column
    float pre[L::kTile][kStreams];
    float rho[L::kTile];
    uint64_t mixes_here, squares_here;
};

struct Aside {
    float mix[kAside][kMix - kStreams + 1];  // an odd row: a thread reads its own
    int token[kAside];
};

// Starts the copies of a tile, if there is such a tile; for one whole warp.
template <class L>
__device__ __forceinline__ void fetch_tile(const Params& p, int tile, int begin, char* stage, uint64_t& full) {
    const int64_t first = int64_t(tile) * L::kTile;
    const int tokens = static_cast<int>(min(int64_t(L::kTile), p.tokens - first));
    if (tokens <= 0) return;
    const int lane = threadIdx.x % 32;
    if (lane == 0) {
        barrier_expect(&full, tokens * (kStreams * L::kSlice + (L::kPost ? (kStreams + kStreams * kStreams) * 4 : 0)));
    }
    __syncwarp();
    const bf16* streams = static_cast<const bf16*>(p.streams) + first * kStreams * p.hidden + begin;
    for (int i = lane; i < tokens * kStreams; i += 32) {
        copy_bulk(stage + i / kStreams * L::kRow + i % kStreams * L::kSlice, streams + int64_t(i) * p.hidden, L::kSlice,
                  full);
    }
    if constexpr (L::kPost) {
        if (lane == 0) {
            copy_bulk(stage + L::kPostAt, p.post + first * kStreams, tokens * kStreams * 4, full);
            copy_bulk(stage + L::kCombAt, p.comb + first * kStreams * kStreams, tokens * kStreams * kStreams * 4, full);
        }
        if (lane < tokens) {  // y is read by threads: only as far as L2
            const bf16* y = static_cast<const bf16*>(p.y) + (first + lane) * p.hidden + begin;
            asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(y), "r"(L::kSlice) : "memory");
        }
    }
}

// The row's x before its norm; returns the squares of this lane's channels.
template <class L>
__device__ __forceinline__ float collapse_row(const char* tile, const float (&weights)[kStreams], int row,
                                              Pack<bf16, 8> (&x)[L::kOctets]) {
    const float pre[kStreams] = {weights[0], weights[1], weights[2], weights[3]};
    float sum = 0;
#pragma unroll
    for (int o = 0; o < L::kOctets; ++o) {
        if (!L::has(o)) continue;
        const int c = (o * 32 + threadIdx.x % 32) * 8;
        const bf16* held = reinterpret_cast<const bf16*>(tile + row * L::kRow) + c;
        Pack<bf16, 8> streams[kStreams];
#pragma unroll
        for (int j = 0; j < kStreams; ++j) streams[j] = load_pack<8>(held + j * L::kChannels);
        x[o] = collapse(pre, streams);
        sum += squares(x[o]);
    }
    return sum;
}

template <class L>
__device__ __forceinline__ void write_row(const Params& p, int64_t token, int begin,
                                          const Pack<bf16, 8> (&x)[L::kOctets], float scale) {
#pragma unroll
    for (int o = 0; o < L::kOctets; ++o) {
        if (!L::has(o)) continue;
        const int c = (o * 32 + threadIdx.x % 32) * 8;
        const Pack<bf16, 8> weight = load_pack<8>(p.site.norm_weight + begin + c);
        store_pack(static_cast<bf16*>(p.x) + token * p.hidden + begin + c, normalised(x[o], weight, scale));
    }
}

}  // namespace dsv4::mhc
