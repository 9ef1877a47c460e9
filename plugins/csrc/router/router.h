#pragma once
#include "common/op.h"

namespace dsv4::router {

constexpr int kMaxFewTokens = 512;   // above, the gate is no longer what the product waits for
constexpr int kMaxPicks = 32;       // one lane of a warp each
constexpr int kMaxExperts = 4096;   // scores of one token lie in shared memory

struct Params {
    const void* x;              // [tokens, depth]
    const void* gate;           // bf16 [experts, depth]
    const float* bias;          // [experts]; null: experts by token id
    const int32_t* tid2eid;     // [vocabulary, picks]
    const int32_t* token_ids;   // [tokens]
    int64_t vocabulary;
    int tokens, depth, experts, picks;
    float route_scale;
    float* logits;              // [splits, tokens, experts]: the sum over splits is x @ gate^T
    int splits;
    int32_t* expert_ids;        // [tokens, picks]
    float* weights;             // [tokens, picks]
};

// Into how many parts `few` cuts the depth.
int few_splits(int tokens, int experts, int depth);

// Most logits, those of all parts counted, that `few` has for at most so many tokens, experts and inputs.
int64_t few_logits_bound(int tokens, int experts, int depth);

// Logits of at most kMaxFewTokens bf16 tokens; depth must be a multiple of 8.
void few(const Params& params, cudaStream_t stream);

// Experts and weights from the logits.
void pick(const Params& params, cudaStream_t stream);

}  // namespace dsv4::router
