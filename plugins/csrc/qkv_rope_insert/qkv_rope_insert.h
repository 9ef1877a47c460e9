// Weightless norm and rotation of query heads; window keys rotated, rounded to their cache format, and those
// that have a slot written to their page.
#pragma once
#include "common/entries.cuh"

namespace dsv4::qkv_rope_insert {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kChunk = 256;    // channels that a warp loads at once, 8 a lane

struct Params {
    const void *q, *kv;        // [tokens, heads * head_dim], [tokens, head_dim]
    void *q_out, *kv_out;
    const float* inv_freq;     // [pairs]
    const int32_t *positions, *seq_ids, *table_rows, *slots;
    BlockTable table;
    Pool pool;
    EntryLayout entry;
    Format format;
    int tokens, seqs, heads, head_dim, pairs, window_pages;
    int key_blocks;            // the first so many blocks take keys
    float eps, per_channel;    // per_channel: 1 / head_dim
};

}  // namespace dsv4::qkv_rope_insert
