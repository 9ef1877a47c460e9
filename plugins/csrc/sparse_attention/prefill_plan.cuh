// Which keys the queries of an item have: found by one warp, a lane for each query.
#pragma once

#include "sparse_attention/prefill.cuh"

namespace dsv4::sparse_attention::prefill_kernel {

constexpr unsigned kLanes = 0xFFFFFFFFu;

// Fills `plan` for the queries from row `token` on. Queries of one sequence are neighbours, their positions
// consecutive, so the keys of all of them are those from the first one's oldest to the last one's newest.
__device__ __forceinline__ void make_plan(const Params& p, const Work& work, int token, Plan& plan) {
    const int lane = threadIdx.x % 32;
    Query own{};
    int seq = -1;
    if (lane < work.queries && token + lane < p.tokens) {
        own = Query::of(p, token + lane);
        if (own.slots > 0) seq = p.step.seq(token + lane);
    }
    const int before = __shfl_up_sync(kLanes, seq, 1);
    const bool leads = seq >= 0 && (lane == 0 || before != seq);
    const unsigned leaders = __ballot_sync(kLanes, leads);
    const unsigned alive = __ballot_sync(kLanes, seq >= 0);
    const unsigned same = __match_any_sync(kLanes, seq);
    const unsigned upto = leaders & ((2u << lane) - 1);
    const int leader = upto ? 31 - __clz(upto) : lane, last = 31 - __clz(same);

    Query span = own;
    span.oldest = __shfl_sync(kLanes, own.oldest, leader);
    span.window_keys = __shfl_sync(kLanes, own.position, last) + 1 - span.oldest;
    span.visible = __shfl_sync(kLanes, own.visible, last);
    const int entries = p.ratio == 0 ? 0 : p.picked ? p.picks : span.visible;
    const int own_entries = p.ratio == 0 ? 0 : p.picked ? p.picks : own.visible;
    span.slots = span.window_keys + entries;

    int end = leads ? span.slots : 0;  // after the sum: of this sequence
#pragma unroll
    for (int step = 1; step < kMaxQueries; step *= 2) {
        const int more = __shfl_up_sync(kLanes, end, step);
        if (lane >= step) end += more;
    }
    const int base = end - span.slots;
    const int window = base + own.oldest - span.oldest, compressed = base + span.window_keys;
    if (lane < kMaxQueries) {
        const bool real = seq >= 0;
        if (!real) span.slots = 0;
        plan.span[lane] = span;
        plan.first_page[lane] = span.oldest >> work.swa_shift;
        plan.first_column[lane] = (span.oldest >> work.swa_shift) % p.window_pages;
        plan.base[lane] = real ? base : INT_MAX;
        plan.window[lane] = {real ? window : 0, real ? window + own.window_keys : 0};
        plan.entries[lane] = {real ? compressed : 0, real ? compressed + own_entries : 0};
        if (lane == kMaxQueries - 1) plan.slots = end;
        if (lane == 0) plan.alive = alive;
    }
}

// Where a key lies; null: it is none.
struct Place {
    const uint8_t* row;
    int scales;  // how far behind `row`, for the fp8 format; 0 otherwise

    __device__ bool coded() const { return scales != 0; }
    __device__ bool any() const { return row != nullptr; }
};

__device__ __forceinline__ Place place_in(const Cache& cache, Format format, int row, int column, int entry) {
    const int page = cache.table.page(row, column);
    if (!cache.pool.has(page)) return {nullptr, 0};
    const EntryLayout& layout = cache.entry;
    const int64_t in_page = layout.row(entry);
    return {cache.pool.at(page) + in_page,
            format == Format::kFp8 ? static_cast<int>(layout.scales(entry) - in_page) : 0};
}

// The key in a slot of the item. Does what find_key does, without divisions.
__device__ __forceinline__ Place find_place(const Params& p, const Work& work, const Plan& plan, int slot) {
    int query = 0;
    for (int i = 1; i < work.queries; ++i) {
        if (slot >= plan.base[i]) query = i;
    }
    const Query& span = plan.span[query];
    const int key = slot - plan.base[query];
    if (key < 0 || key >= span.slots) return {nullptr, 0};
    if (key < span.window_keys) {
        const int token = span.oldest + key;
        if (token >= span.start) {
            const int64_t row = span.begin + (token - span.start);
            return {static_cast<const uint8_t*>(p.kv) + row * (kDim * 2), 0};
        }
        const int later = (token >> work.swa_shift) - plan.first_page[query];  // fewer than the ring has
        int column = plan.first_column[query] + later;
        if (column >= p.window_pages) column -= p.window_pages;
        return place_in(p.swa, p.format, span.row, column, token & (1 << work.swa_shift) - 1);
    }
    int entry = key - span.window_keys;
    if (p.picked) {
        entry = p.topk[int64_t(span.token) * p.picks + entry];
        if (entry < 0 || entry >= span.visible) return {nullptr, 0};
    }
    const int in_page = entry & (1 << work.entry_shift) - 1;
    return place_in(p.compressed, p.format, span.row, entry >> work.entry_shift, in_page);
}

// The place that the neighbour `part` of four threads has found.
__device__ __forceinline__ Place place_of(const Place& found, int part) {
    const auto row = reinterpret_cast<unsigned long long>(found.row);
    return {reinterpret_cast<const uint8_t*>(__shfl_sync(kLanes, row, part, 4)),
            __shfl_sync(kLanes, found.scales, part, 4)};
}

// Bits of `slots` among the 32 from `first` on.
__device__ __forceinline__ uint32_t slot_bits(Slots slots, int first) {
    auto below = [](int count) { return count <= 0 ? 0u : count >= 32 ? ~0u : (1u << count) - 1; };
    return below(slots.end - first) & ~below(slots.begin - first);
}

}  // namespace dsv4::sparse_attention::prefill_kernel
