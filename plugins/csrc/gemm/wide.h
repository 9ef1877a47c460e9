// The `wide` product as its kernels see it: one block makes tiles of up to 256 weight rows x 128 tokens.
//
// Two kinds: in bf16, which any product can be; and in codes, where x is rounded to e4m3 anyway, weights become
// e4m3 too, and sums over 128 inputs are scaled and added in fp32. The tensor cores keep fewer bits of a sum of
// codes than of bf16, about 2^-13 of the largest product in it.
#pragma once

#include <cuda_bf16.h>

#include "gemm/problem.h"

namespace dsv4::gemm {

constexpr int kWideTokens = 128;       // of a tile, at most
constexpr int kWideCodeTokens = 96;   // in codes, where a second set of sums needs registers
constexpr int kWideSplitTokens = 64;   // where the depth is split
constexpr int kLine = 128;             // bytes of x that a pipeline stage has for each token

struct WideParams {
    const uint8_t* weight;
    const uint8_t* scale;
    int64_t weight_group, scale_group;     // bytes from group to group
    int weight_row, scale_row;             // bytes from row to row (e4m3 scales: from 128 rows to the next)
    int groups, rows, depth;

    const uint8_t* x;                      // as it is multiplied: bf16 or codes, in the decoder's order of inputs
    int64_t x_row_stride, x_group_stride;  // bytes
    const float* x_scale;                  // codes: [x rows, x_scale_row], one per 128 inputs
    int x_scale_row, x_scale_group;
    const int32_t* gather;

    int tokens;
    const Tile* tiles;
    const int32_t* num_tiles;
    int max_tiles, tile_tokens;
    int row_blocks, token_tiles;           // how many tiles there are along rows and (without `tiles`) tokens
    int splits;                            // blocks of a cluster, 1, 2, 4 or 8, that share the depth of a tile

    bool after_inputs;                     // the kernel ahead on the stream prepares x
    bool swiglu;
    float swiglu_limit;
    const float* row_weights;
    void* out;
    bool out_bf16;
    int64_t out_row_stride, out_group_stride;
    const int32_t* scatter;
};

// Tiles have 128 * row_halves weight rows; in codes always 256.
template <Weight kFormat>
void launch_wide(const WideParams& params, int row_halves, int blocks, cudaStream_t stream);
template <Weight kFormat>
void launch_wide_codes(const WideParams& params, int blocks, cudaStream_t stream);

// Rounds or decodes x to bf16, or rounds it to codes, in the order of inputs that the kernel's decoder of `format`
// gives: out[row, section * depth + i'], sections lying `section_stride` apart in a row of x.
struct WideInputs {
    const void* x;
    const uint8_t* x_scale;
    Act act;
    int64_t row_stride, section_stride;  // elements
    int rows, sections, depth;
    void* out;
    float* out_scale;                    // [rows, sections * depth / 128]
};

void wide_inputs(const WideInputs& params, Weight format, cudaStream_t stream);
void wide_codes(const WideInputs& params, Weight format, cudaStream_t stream);
// Of x that is in codes already: only what its scale bytes mean.
void wide_scales(const WideInputs& params, cudaStream_t stream);

}  // namespace dsv4::gemm
