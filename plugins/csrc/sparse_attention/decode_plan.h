// How the keys of few query tokens are split over blocks, from sizes and the device alone. Which keys a block
// gets is found on the device, so that a captured launch serves sequences of any length.
#pragma once
#include "sparse_attention/sparse_attention.h"

namespace dsv4::sparse_attention {

constexpr int kDecodeDim = 512, kDecodeRopePairs = 32;

// One block: `heads` heads of one token, `tile` keys at a time.
struct BlockShape {
    int heads, tile;
};

struct Plan {
    BlockShape shape;
    int head_blocks, splits;  // blocks of a token: head_blocks * splits

    static Plan of(const Params& p, Rows rows);
};

// Partial results, where there is more than one split: [row][head][split], first the sums of values, then their
// peak (in powers of two) and total. Only the splits that a token uses are written.
struct Partials {
    float* values;
    float2* stats;
    int heads, splits;

    static Partials of(const Params& p, Rows rows, const Plan& plan, void* workspace) {
        float* values = static_cast<float*>(workspace);
        const int64_t count = int64_t(rows.count) * p.heads * plan.splits;
        return {values, reinterpret_cast<float2*>(values + count * kDecodeDim), p.heads, plan.splits};
    }
    static size_t bytes(int64_t count) { return count * (kDecodeDim * sizeof(float) + sizeof(float2)); }
    static size_t bytes(const Params& p, Rows rows, const Plan& plan) {
        return bytes(int64_t(rows.count) * p.heads * plan.splits);
    }
    __host__ __device__ int64_t index(int row, int head, int split) const {
        return (int64_t(row) * heads + head) * splits + split;
    }
};

// The tiles [begin, end) of keys that belong to a split, and how many splits have any.
struct Share {
    int begin, end, used;

    __host__ __device__ static Share of(int slots, int tile, int splits, int split) {
        const int tiles = (slots + tile - 1) / tile;
        const int each = (tiles + splits - 1) / splits;
        if (each == 0) return {0, 0, 0};
        const int end = (split + 1) * each;
        return {split * each, end < tiles ? end : tiles, (tiles + each - 1) / each};
    }
};

// Merges the partial results of tokens that use more than one split.
void combine(const Params& p, Rows rows, const Plan& plan, const Partials& partials, cudaStream_t stream);

}  // namespace dsv4::sparse_attention
