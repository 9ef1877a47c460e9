// Matrix products of activations with weights as the rank file stores them: what one product is.
//
// Every format decodes exactly into bf16 (fp32 in exact precision), activations rounded by act8 included,
// so the kernels multiply in bf16 and add in fp32: the same function as the reference, to the order of sums.
#pragma once

#include "common/op.h"

namespace dsv4::gemm {

enum class Weight {
    kBf16,   // [rows, depth]
    kE4M3,   // [rows, depth], one e8m0 scale per 128 x 128 block: [ceil(rows / 128), ceil(depth / 128)]
    kE2M1,   // [rows, depth / 2] bytes, the even column in the low nibble; e8m0 scales [rows, depth / 32]
};

enum class Act {
    kNone,   // x as it is
    kAct8,   // x rounded through e4m3 with a power-of-two scale per 128 inputs
    kCodes,  // x is e4m3 already, with scale bytes `x_scale` per 128 inputs
};

enum class Epilogue {
    kStore,   // out[i, r]
    kSwiglu,  // rows are gate rows, then as many up rows; out[i, r] with half as many columns
};

// Rows `begin .. begin + count` of the packed token rows multiply with one group's weight.
struct Tile {
    int group, begin, count;
};

// out[o(i), r] = sum over k of act(x[a(i), k]) * weight[g, r, k], for the packed token rows i of each group g.
struct Problem {
    Weight weight_format;
    const void* weight;         // groups lie one after another
    const uint8_t* scale;       // likewise; null for bf16
    int groups, rows, depth;

    const void* x;
    int x_dtype;                // DSV4_F32, DSV4_BF16 or (kCodes) DSV4_F8_E4M3
    const uint8_t* x_scale;     // kCodes: [x rows, x_row_stride / 128] bytes, group g from column g * x_group_stride / 128
    int64_t x_row_stride, x_group_stride;      // elements
    int x_rows = 0;             // rows of x, set where `gather` is: `wide` prepares x once, before it is gathered
    const int32_t* gather;      // a(i): packed row to row of x; null: i
    Act act;

    int tokens;                 // packed rows, at most
    const Tile* tiles;          // device; null: every group multiplies with all `tokens` rows
    const int32_t* num_tiles;   // device
    int max_tiles;              // a bound on *num_tiles, from sizes alone; 0: there are no tiles
    bool old_tiles = false;     // tiles were complete before the kernel ahead on the stream began
    int tile_tokens;            // no tile has more rows; from tile_tokens(): for `wide` 64 to 128

    Epilogue epilogue;
    float swiglu_limit;
    const float* row_weights;   // kSwiglu: per packed row, multiplied before rounding; null: 1

    void* out;
    int out_dtype;              // DSV4_F32 or DSV4_BF16
    int64_t out_row_stride, out_group_stride;  // elements
    const int32_t* scatter;     // o(i): packed row to row of out; null: i
};

constexpr int kLeastTileTokens = 8;

// Rows that one tile of a grouped product should have, for `tokens` packed rows spread over `groups`; at least
// kLeastTileTokens.
int tile_tokens(int tokens, int groups, int x_dtype);

// Which kernels a product takes follows from sizes and the device alone: workspace() may be asked before there
// are any pointers, so that only max_tiles says whether there are tiles. x, weight and fp4 scales lie at
// multiples of 16 bytes.
// Weights and scales may be read before the kernel ahead on the stream has ended; nothing else is.
size_t workspace(const Problem& problem);
size_t workspace_bound(const Problem& largest);  // for any fewer tokens, rows or groups
void run(const Problem& problem, void* workspace, cudaStream_t stream);

// The three families that `run` chooses from. `wide` is for many token rows a group (Hopper's wgmma);
// `skinny` for few, on every architecture; `exact` for fp32 activations.
bool wide_fits(const Problem& problem);
size_t wide_workspace(const Problem& problem);
size_t wide_workspace_bound(const Problem& largest);
void wide(const Problem& problem, void* workspace, cudaStream_t stream);
size_t skinny_workspace(const Problem& problem);
void skinny(const Problem& problem, void* workspace, cudaStream_t stream);
void exact(const Problem& problem, cudaStream_t stream);

}  // namespace dsv4::gemm
