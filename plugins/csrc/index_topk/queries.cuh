// A token's queries and head weights on their way into shared memory, for the products of its heads with keys.
#pragma once

#include "index_topk/rows.cuh"

namespace dsv4::index_topk {

constexpr int kColumnTiles = kTensorHeads / 8;

// Pairs of bf16 weights, of heads 8 * column tile + 2t and the next, by t.
using HeadWeights = uint32_t[4][kColumnTiles];

// By the whole block, which has `threads`; a barrier must follow. `put(queries, head, t, words)`, which stands beside
// the type of the queries, stores slice t of a head's row where the products look for it.
template <Format kFormat, class Queries>
__device__ __forceinline__ void read_queries(const Params& p, int token, int threads, Queries& queries,
                                             HeadWeights& weights) {
    for (int i = threadIdx.x; i < kTensorHeads * 4; i += threads) {
        const int head = i / 4, t = i % 4;
        const int64_t row = int64_t(token) * kTensorHeads + head;
        Slice<kFormat> slice;
        slice.load(static_cast<const uint8_t*>(p.q) + row * slice.kRowBytes, p.q_scale + row * 4, t);
        uint32_t words[kSliceWords];
        slice.decode(words);
        put(queries, head, t, words);
    }
    if (threadIdx.x < kTensorHeads / 2) {
        const int pair = threadIdx.x;   // heads 2 * pair and the next
        const float* from = p.weights + int64_t(token) * kTensorHeads + 2 * pair;
        const __nv_bfloat162 rounded = __floats2bfloat162_rn(from[0], from[1]);
        weights[pair % 4][pair / 4] = reinterpret_cast<const uint32_t&>(rounded);
    }
}

}  // namespace dsv4::index_topk
