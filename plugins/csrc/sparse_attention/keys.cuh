// Which keys a query has and where they lie: first its window, the oldest token first, then compressed entries.
#pragma once

#include "common/numbers.cuh"
#include "sparse_attention/sparse_attention.h"

namespace dsv4::sparse_attention {

// A query's sequence and its key slots: `window_keys` tokens from `oldest` on, then compressed entries: the
// first `visible`, or one for each pick. Padding rows have no slots.
struct Query {
    int token;        // row of q
    int position;
    int row;          // of the block tables
    int begin, start; // first token row of the sequence in this step, and that row's position
    int oldest, window_keys;
    int visible, slots;

    __device__ static Query of(const Params& p, int token) {
        Query query{};
        query.token = token;
        const int seq = p.step.seq(token);
        const int position = p.step.positions[token];
        query.position = position;
        if (seq < 0 || position < 0) return query;
        const int length = p.step.seq_lens[seq], end = p.step.query_start[seq + 1];
        query.row = p.step.table_rows[seq];
        query.begin = p.step.query_start[seq];
        query.start = length - (end - query.begin);
        if (length <= 0) return query;
        query.oldest = max(0, position - p.window + 1);
        query.window_keys = position + 1 - query.oldest;
        query.visible = p.ratio ? (position + 1) / p.ratio : 0;
        query.slots = query.window_keys + (p.ratio == 0 ? 0 : p.picked ? p.picks : query.visible);
        return query;
    }
};

// What a slot names: a token of the window or a compressed entry, or what the pick says, checked or not.
__device__ __forceinline__ int key_name(const Params& p, const Query& query, int slot) {
    if (slot < 0 || slot >= query.slots) return -1;
    if (slot < query.window_keys) return query.oldest + slot;
    const int entry = slot - query.window_keys;
    return p.picked ? p.topk[int64_t(query.token) * p.picks + entry] : entry;
}

// The same without picks that are no keys: -1 then. A name is a load, which is best looked at later.
__device__ __forceinline__ int key_entry(const Query& query, int slot, int name) {
    return slot < query.window_keys || name < query.visible ? max(name, -1) : -1;
}

// True if the slot's key is a row of this step's `kv`.
__device__ __forceinline__ bool key_is_new(const Query& query, int slot, int entry) {
    return slot < query.window_keys && entry >= query.start;
}

// The entry's page counted in its sequence.
__device__ __forceinline__ int page_number(const Cache& cache, int entry) {
    return cache.shift >= 0 ? entry >> cache.shift : entry / cache.entry.per_page;
}

// The page that holds it, -1 if none does; not to be asked for keys of this step.
__device__ __forceinline__ int key_page(const Params& p, const Query& query, int slot, int entry) {
    if (entry < 0) return -1;
    if (slot >= query.window_keys) return p.compressed.table.page(query.row, page_number(p.compressed, entry));
    const int number = page_number(p.swa, entry);
    const int rounds = p.window_pages == 1 ? number : __umulhi(number, p.ring_factor);
    return p.swa.table.page(query.row, number - rounds * p.window_pages);
}

// Where a key lies.
struct Key {
    const uint8_t* row;     // null: no key
    const uint8_t* scales;  // fp8 entries only
    bool activation;        // a row of `kv`, not an entry
};

__device__ __forceinline__ Key key_in_page(const Params& p, const Query& query, int slot, int entry, int page) {
    const Cache& cache = slot < query.window_keys ? p.swa : p.compressed;
    if (entry < 0 || !cache.pool.has(page)) return {nullptr, nullptr, false};
    const uint8_t* bytes = cache.pool.at(page);
    const int place = entry - page_number(cache, entry) * cache.entry.per_page;
    return {bytes + cache.entry.row(place), bytes + cache.entry.scales(place), false};
}

__device__ __forceinline__ Key new_key(const Params& p, const Query& query, int entry) {
    const int64_t row = query.begin + (entry - query.start);
    if (row < 0 || row >= p.tokens) return {nullptr, nullptr, false};
    const int64_t bytes = int64_t(p.dim) * (p.bf16 ? 2 : 4);
    return {static_cast<const uint8_t*>(p.kv) + row * bytes, nullptr, true};
}

// All of the above at once.
__device__ __forceinline__ Key find_key(const Params& p, const Query& query, int slot) {
    const int entry = key_entry(query, slot, key_name(p, query, slot));
    if (entry < 0) return {nullptr, nullptr, false};
    if (key_is_new(query, slot, entry)) return new_key(p, query, entry);
    return key_in_page(p, query, slot, entry, key_page(p, query, slot, entry));
}

// Channel c of a key, as the reference decodes it.
__device__ __forceinline__ float key_channel(const Params& p, const Key& key, int c) {
    const bf16* halves = reinterpret_cast<const bf16*>(key.row);
    const float* floats = reinterpret_cast<const float*>(key.row);
    if (key.activation) return p.bf16 ? to_float(halves[c]) : floats[c];
    if (p.format == Format::kBf16) return to_float(halves[c]);
    if (p.format == Format::kFp32) return floats[c];
    const int nope = p.dim - 2 * p.rope_pairs;
    if (c < nope) return e4m3_decode(key.row[c]) * e8m0_decode(key.scales[c / 64]);
    return to_float(*reinterpret_cast<const bf16*>(key.row + nope + 2 * (c - nope)));
}

}  // namespace dsv4::sparse_attention
