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
        plan.base[lane] = real ? base : INT_MAX;
        plan.window[lane] = {real ? window : 0, real ? window + own.window_keys : 0};
        plan.entries[lane] = {real ? compressed : 0, real ? compressed + own_entries : 0};
        if (lane == kMaxQueries - 1) plan.slots = end;
        if (lane == 0) plan.alive = alive;
    }
}

// The key in a slot of the item; it has `scales` if it is in the fp8 format.
__device__ __forceinline__ Key plan_key(const Params& p, const Work& work, const Plan& plan, int slot) {
    int query = 0;
    for (int i = 1; i < work.queries; ++i) {
        if (slot >= plan.base[i]) query = i;
    }
    Key key = find_key(p, plan.span[query], slot - plan.base[query]);
    if (key.activation || p.format != Format::kFp8) key.scales = nullptr;
    return key;
}

// Bits of `slots` among the 32 from `first` on.
__device__ __forceinline__ uint32_t slot_bits(Slots slots, int first) {
    auto below = [](int count) { return count <= 0 ? 0u : count >= 32 ? ~0u : (1u << count) - 1; };
    return below(slots.end - first) & ~below(slots.begin - first);
}

}  // namespace dsv4::sparse_attention::prefill_kernel
