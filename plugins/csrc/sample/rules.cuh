// A row of logits as its request wants them: mask, bias, repetition penalty, added penalties, in that order.
#pragma once

#include "sample/row.cuh"

namespace dsv4::sample {

struct Span {
    int begin, end;
};

__device__ __forceinline__ Span span_of(const List& list, int64_t row) {
    return {max(list.start[row], 0), min(list.start[row + 1], list.count)};
}

// Calls body(logit, item) for each item of a row's list; ids beyond the vocabulary are nobody's.
template <class Body>
__device__ __forceinline__ void change(const List& list, Span span, float* logits, int vocab, Body body) {
    for (int i = span.begin + threadIdx.x; i < span.end; i += kThreads) {
        const int id = list.ids[i];
        if (id >= 0 && id < vocab) body(logits[id], i);
    }
    __syncthreads();
}

template <int N>
__device__ __forceinline__ void copy_masked(const float* from, const uint32_t* mask, float* to, int vocab) {
    for (int pack = threadIdx.x; pack < vocab / N; pack += kThreads) {
        const int id = pack * N;
        Pack<float, N> logits = load_pack<N>(from + id);
        const uint32_t bits = mask ? mask[id / 32] >> id % 32 : 0xFFFFFFFFu;
#pragma unroll
        for (int e = 0; e < N; ++e) {
            if (!(bits >> e & 1)) logits.at[e] = -INFINITY;
        }
        store_pack(to + id, logits);
    }
    __syncthreads();
}

// The row itself if no rule is for it, or the changed copy.
template <int N>
__device__ __forceinline__ const float* apply_rules(const Params& p, int64_t row, const float* raw) {
    if (!p.changed) return raw;
    const int mask_row = p.limits[3 * row + 1];
    const bool masked = mask_row >= 0 && mask_row < p.masked;
    const Span bias = span_of(p.bias, row), seen = span_of(p.seen, row), penalty = span_of(p.penalty, row);
    if (!masked && bias.begin >= bias.end && seen.begin >= seen.end && penalty.begin >= penalty.end) return raw;

    float* logits = p.changed + row * p.vocab;
    copy_masked<N>(raw, masked ? p.masks + int64_t(mask_row) * p.words : nullptr, logits, p.vocab);
    change(p.bias, bias, logits, p.vocab, [&](float& x, int i) { x += p.bias.values[i]; });
    const float repetition = p.scales[3 * row + 2];
    change(p.seen, seen, logits, p.vocab, [&](float& x, int) { x = x > 0 ? x / repetition : x * repetition; });
    change(p.penalty, penalty, logits, p.vocab, [&](float& x, int i) { x += p.penalty.values[i]; });
    return logits;
}

}  // namespace dsv4::sample
