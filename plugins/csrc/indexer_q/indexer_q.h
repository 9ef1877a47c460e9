// Indexer queries: rotated, Hadamard-transformed, quantized; head weights scaled.
#pragma once
#include "common/entry_layout.cuh"

namespace dsv4::indexer_q {

constexpr int kHeadDim = 128;
constexpr int kMaxPairs = kHeadDim / 2;

struct Params {
    const void* q;              // [tokens, num_heads, 128], fp32 or bf16
    const void* weights;        // [tokens, num_heads], the dtype of q
    const float* inv_freq;      // [pairs]
    const int32_t* positions;   // [tokens]
    void* out;                  // rows of `Format`
    uint8_t* out_scale;         // fp4: [tokens, num_heads, 4]
    float* out_weights;         // [tokens, num_heads]
    int tokens, num_heads, pairs;
    float scale;
};

}  // namespace dsv4::indexer_q
