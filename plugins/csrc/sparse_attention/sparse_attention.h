// Attention of one shared key-value head over a window and compressed entries. What a call says, and the
// kernels that launch.cu picks from.
#pragma once
#include "common/entry_layout.cuh"

namespace dsv4::sparse_attention {

// One cache class: a layer's rows of its block table, the pool, and where entries lie in a page.
struct Cache {
    BlockTable table;
    Pool pool;
    EntryLayout entry;
    int shift;  // log2 of entries per page, -1 if these are no power of two
};

struct Params {
    const void *q, *kv;     // [tokens, heads, dim], [tokens, dim]; bf16 or fp32
    const float* sinks;     // [heads]
    const float* inv_freq;  // [rope_pairs]
    void* out;              // as q
    Step step;
    Cache swa;              // window keys from before the step, in the first ring of `window_pages` columns
    int window_pages;
    uint32_t ring_factor;   // 2^32 / window_pages, rounded up: a quotient is the high word of a product
    Cache compressed;       // where ratio is not 0
    bool picked;            // by `topk`; else every visible entry is a key
    const int32_t* topk;    // [tokens, picks]
    int picks;
    int tokens, heads, dim, rope_pairs;
    int num_decodes;        // rows 0 .. num_decodes - 1 are one token of a sequence each
    int window, ratio;
    float sm_scale;
    Format format;
    bool bf16;              // activations; fp32 otherwise
    bool round_probs;       // to bf16 for the value product
    bool inverse_rope;

    // Most keys that a query can have, from sizes alone.
    int64_t most_keys() const {
        if (ratio == 0) return window;
        if (picked) return int64_t(window) + picks;
        return window + int64_t(compressed.table.columns) * compressed.entry.per_page;
    }
};

// Token rows of a call: `count` of them from `first` on.
struct Rows {
    int first, count;
};

// Many query tokens of a few sequences: token rows from `num_decodes` on (Hopper's wgmma, bf16).
bool prefill_fits(const Params& p);
size_t prefill_workspace(const Params& p);
void prefill(const Params& p, void* workspace, cudaStream_t stream);

// Few query tokens with any number of keys: the keys of a token are split over blocks. bf16, real width.
bool decode_fits(const Params& p);
size_t decode_workspace(const Params& p, Rows rows);
size_t decode_workspace_bound(const Params& largest);  // for any of its rows
void decode(const Params& p, Rows rows, void* workspace, cudaStream_t stream);

// Every format and size, in fp32.
void generic(const Params& p, Rows rows, cudaStream_t stream);

}  // namespace dsv4::sparse_attention
