// The tokens of a block: neighbours in the step, whose runs of one sequence share keys.
#pragma once

#include "index_topk/index_topk.h"

namespace dsv4::index_topk {

template <int kTokens>
struct TokenTile {
    int visible[kTokens];   // entries to score; 0 where nothing is chosen
    int seqs[kTokens];
    int table_rows[kTokens];

    // Threads of the whole block come here, then to a barrier.
    __device__ __forceinline__ void read(const Params& p, int first, int tokens) {
        if (threadIdx.x >= tokens) return;
        const int seq = p.step.seq(first + threadIdx.x), n = p.visible(first + threadIdx.x);
        table_rows[threadIdx.x] = seq < 0 ? -1 : p.step.table_rows[seq];
        visible[threadIdx.x] = p.chooses(n) ? n : 0;
        seqs[threadIdx.x] = seq;
    }
    // End of the run that starts at `begin`; `most` is the largest `visible` of it.
    __device__ __forceinline__ int run(int begin, int tokens, int& most) const {
        int end = begin;
        for (most = 0; end < tokens && seqs[end] == seqs[begin]; ++end) most = max(most, visible[end]);
        return end;
    }
};

}  // namespace dsv4::index_topk
