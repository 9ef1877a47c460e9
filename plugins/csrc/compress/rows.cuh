// Where a token row's terms come from, and where its state and its entry go.
//
// Pages are looked up apart from what is done with them, so that look-ups that need not wait for each other
// do not. A page of -1 is none.
#pragma once

#include "compress/compress.h"

namespace dsv4::compress {

// What a row has to do; slots are -1 where there is nothing to write.
struct Row {
    int position, table_row, start;   // start: tokens its sequence held before the step
    int slot, state_slot;
};

__device__ __forceinline__ Row row_of(const Params& p, int row) {
    if (row >= p.step.num_tokens) return {0, 0, 0, -1, -1};
    const int seq = p.step.seq(row), slot = p.slots[row], state_slot = p.state_slots[row];
    const int position = p.step.positions[row];
    if (seq < 0 || (slot < 0 && state_slot < 0)) return {position, 0, 0, -1, -1};
    return {position, p.step.table_rows[seq], p.step.start(seq), slot, state_slot};
}

__device__ __forceinline__ int entry_page(const Params& p, const Row& own) {
    return own.slot < 0 ? -1 : p.table.page(own.table_row, own.slot / p.entry.per_page);
}

// The window ring after the step is behind that before it.
__device__ __forceinline__ int kept_page(const Params& p, const Row& own) {
    if (own.state_slot < 0) return -1;
    return p.state_table.page(own.table_row, p.state_window_pages + own.state_slot / p.state_per_page);
}

// Of a token of the row's sequence, if it is older than the step.
__device__ __forceinline__ int older_page(const Params& p, const Row& own, int token) {
    if (token < 0 || token >= own.start) return -1;
    return p.state_table.page(own.table_row, token / p.state_per_page % p.state_window_pages);
}

__device__ __forceinline__ EntryPlace entry_place(const Params& p, const Row& own, int page) {
    return dsv4::entry_place(p.pool, p.entry, page, own.slot % p.entry.per_page);
}

// The values of a token's state; gates are `overlap * width` behind. Null: nowhere.
__device__ __forceinline__ float* state_row(const Params& p, int page, int token) {
    if (!p.state_pool.has(page)) return nullptr;
    const int64_t floats = 2 * p.overlap * p.width;
    return reinterpret_cast<float*>(p.state_pool.at(page)) + token % p.state_per_page * floats;
}

// Where the values and gates of one term lie.
struct Term {
    const float* values;  // gates are `overlap * width` behind
    int bias;             // the row of `ape` that its gate lacks, or one of these:
};
constexpr int kBiased = -1, kMissing = -2;

// The term of `token`, of the group that the token at `row` completes. Terms from before the sequence are
// missing; so are those whose page is not there. A missing term points to any finite numbers.
__device__ __forceinline__ Term term_of(const Params& p, const Row& own, int row, int token, int page) {
    const int64_t floats = 2 * p.overlap * p.width;
    if (token >= own.start && token >= 0) {
        return {p.kv_gate + max(row - (own.position - token), 0) * floats, token % p.ratio};
    }
    const float* older = state_row(p, page, token);
    if (older) return {older, kBiased};
    return {p.ape, kMissing};
}

// Completes four gates of a term, `lane` floats into its row; a missing one weighs nothing.
__device__ __forceinline__ void add_bias(const Params& p, int bias, int lane, float (&gates)[4]) {
    const float fill = bias == kMissing ? -INFINITY : 0.0f;
    float4 more = {fill, fill, fill, fill};
    if (bias >= 0) more = __ldg(reinterpret_cast<const float4*>(p.ape + bias * p.overlap * p.width + lane));
    gates[0] += more.x, gates[1] += more.y, gates[2] += more.z, gates[3] += more.w;
}

// e to the power of a gate less the largest one, as near as fp32 sums of such weights are.
__device__ __forceinline__ float softmax_weight(float x) {
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x * 1.4426950408889634f));
    return out;
}

template <class T>
__device__ __forceinline__ T* shuffled(T* pointer, int lane, int lanes = 32) {
    return reinterpret_cast<T*>(__shfl_sync(kFullMask, reinterpret_cast<unsigned long long>(pointer), lane, lanes));
}

__device__ __forceinline__ EntryPlace shuffled(const EntryPlace& place, int lane) {
    return {shuffled(place.row, lane), shuffled(place.scales, lane)};
}

}  // namespace dsv4::compress
