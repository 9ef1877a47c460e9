// The compressor: groups of tokens pooled into entries, and the state that unfinished groups need.
//
// One launch reads old state and writes new state in any order. That is no race: a page is one logical page
// of one sequence, and a token's entry in it is its position modulo the entries of a page. What is read
// belongs to positions from before the step, what is written to positions of the step; so the bytes differ,
// also where a page is in both rings of the table. Pages that leave a window are given away after the step.
#pragma once
#include "common/entries.cuh"

namespace dsv4::compress {

// Kernels may start while the one ahead of them, which makes `kv_gate`, still runs; tables, lists of the step,
// weights and state pages are older than that.
struct Params {
    const float* kv_gate;      // [tokens, 2 * lanes]: values, then gates
    const float* ape;          // [ratio, lanes]
    const bf16* norm_weight;   // [width]
    const float* inv_freq;     // [pairs]
    Step step;
    const int32_t *state_slots, *slots;
    BlockTable state_table, table;
    Pool state_pool, pool;
    EntryLayout entry;
    Format format;
    int ratio, overlap, width, pairs;
    bool hadamard, bf16_act;
    int state_per_page, state_window_pages;
    float eps;
    int spread;                // rows of a team that lie together, or clusters that rows are dealt out to
};

// Groups of 4 with the previous group, a term a register: CSA and its indexer.
void overlapping(const Params& p, cudaStream_t stream);
// Long groups without the previous one, spread over a cluster of blocks: HCA.
void disjoint(const Params& p, cudaStream_t stream);

}  // namespace dsv4::compress
