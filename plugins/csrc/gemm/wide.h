// The `wide` product as its kernels see it: one block makes tiles of up to 256 weight rows x 128 tokens.
#pragma once

#include <cuda_bf16.h>

#include "gemm/problem.h"

namespace dsv4::gemm {

constexpr int kWideTokens = 128;       // of a tile, at most
constexpr int kWideSplitTokens = 64;   // where the depth is split
constexpr int kLine = 128;             // bytes of x that a pipeline stage has for each token

struct WideParams {
    const uint8_t* weight;
    const uint8_t* scale;
    int64_t weight_group, scale_group;     // bytes from group to group
    int weight_row, scale_row;             // bytes from row to row (e4m3 scales: from 128 rows to the next)
    int groups, rows, depth;

    const uint8_t* x;                      // bf16, in the decoder's order of inputs
    int64_t x_row_stride, x_group_stride;  // bytes
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

// Tiles have 128 * row_halves weight rows.
template <Weight kFormat>
void launch_wide(const WideParams& params, int row_halves, int blocks, cudaStream_t stream);

// Rounds or decodes x, and puts it into the order of inputs that the kernel's decoder of `format` gives:
// out[row, section * depth + i'], sections lying `section_stride` apart in a row of x.
struct WideInputs {
    const void* x;
    const uint8_t* x_scale;
    Act act;
    int64_t row_stride, section_stride;  // elements
    int rows, sections, depth;
    void* out;
};

void wide_inputs(const WideInputs& params, Weight format, cudaStream_t stream);

}  // namespace dsv4::gemm
