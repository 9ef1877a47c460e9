// Scores of visible indexer keys and the exact best `topk` of them, for every token of a ragged step.
//
// Rows of tokens are taken in passes: the scores of a pass lie in the workspace as ordered keys
// (order.cuh), then each row's best are selected from there.
#pragma once
#include "common/entry_layout.cuh"

namespace dsv4::index_topk {

constexpr int kHeadDim = 128;
constexpr int kTensorHeads = 64;    // what the tensor core kernel is made for
constexpr int kTileKeys = 32;       // of one warp's tile; a tile lies in one page

struct Params {
    const void* q;                  // [tokens, num_heads, row]
    const uint8_t* q_scale;         // fp4: [tokens, num_heads, 4]
    const float* weights;           // [tokens, num_heads]
    Step step;
    BlockTable table;
    Pool pool;
    EntryLayout entry;
    int32_t* out;                   // [tokens, topk]
    int topk, ratio, num_heads;
    Format format;
    bool rounds;                    // scores are rounded to bf16, and their keys have 16 bits; else fp32 and 32

    void* scores;                   // [row_end - row_begin, stride] ordered keys
    int64_t stride;
    int width;                      // entries that the block table has room for
    int row_begin, row_end;         // token rows of this pass

    // Entries that a token sees, 0 for padding.
    __device__ int visible(int token) const {
        const int seq = step.seq(token);
        if (seq < 0 || step.positions[token] < 0) return 0;
        const int total = max(step.seq_lens[seq], 0) / ratio;
        return min(min(total, int((uint32_t(step.positions[token]) + 1) / uint32_t(ratio))), width);
    }
    // Whether there is anything to choose: fewer are listed all.
    __device__ bool chooses(int visible) const { return visible > topk; }
};

// Write the ordered keys of rows that choose. `share`: neighbours are of one sequence and share keys.
bool tensor_scores_fit(const Params& p);
void tensor_scores(const Params& p, bool share, cudaStream_t stream);
bool hopper_scores_fit(const Params& p);
void hopper_scores(const Params& p, bool share, cudaStream_t stream);
void plain_scores(const Params& p, cudaStream_t stream);

// Writes the picks. `after_scores`: the launch before it on the stream wrote the scores; it may start early.
void select(const Params& p, bool after_scores, cudaStream_t stream);

}  // namespace dsv4::index_topk
