// Attention outputs rotated back and quantized: one read, one write.
#pragma once
#include "common/op.h"

namespace dsv4::inv_rope_quant {

constexpr int kThreads = 256;
constexpr int kBlock = 128;                // channels that share a scale
constexpr int kChunk = 256, kChunks = 4;   // channels that a warp loads at once, 8 a lane; how often
constexpr int kPart = kChunk * kChunks;    // channels of a warp

struct Params {
    const void* x;             // [tokens, row], heads of `head_dim` side by side
    const float* inv_freq;     // [pairs]
    const int32_t* positions;  // [tokens]
    uint8_t* out;              // e4m3 [tokens, row]
    uint8_t* scale;            // e8m0 [tokens, row / 128]
    int tokens, row, head_dim, pairs;
};

// For bf16 heads of 512 channels, 64 of them rotated, an even number of them.
bool paired_fits(const Params& p, int x_dtype);
void paired(const Params& p, cudaStream_t stream);

}  // namespace dsv4::inv_rope_quant
