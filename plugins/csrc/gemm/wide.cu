// Chooses tiles for a `wide` product, prepares its inputs and starts its kernel.
#include <algorithm>

#include "gemm/wide.h"

namespace dsv4::gemm {
namespace {

constexpr int kLeastTokens = 64;
constexpr int64_t kMostInputs = 128 << 20;  // bytes of prepared inputs at a time, where tokens can be split

bool prepares(const Problem& p) { return p.act != Act::kNone || p.weight_format != Weight::kBf16; }

// Sizes alone decide: where a workspace is asked for, pointers need not be set yet.
bool tiled(const Problem& p) { return p.max_tiles > 0; }

// Without tiles every group has its own section of a row of x.
int sections(const Problem& p) { return tiled(p) ? 1 : p.groups; }

// Tokens whose inputs are prepared at once.
int chunk_tokens(const Problem& p) {
    const int64_t row = int64_t(sections(p)) * p.depth * 2;
    if (!prepares(p) || tiled(p) || p.x_rows > 0 || p.tokens * row <= kMostInputs) return p.tokens;
    return static_cast<int>(std::max<int64_t>(kMostInputs / row / kWideTokens, 1)) * kWideTokens;
}

struct Shape {
    int row_halves, tile_tokens;  // a tile has 128 * row_halves weight rows
};

// Cycles of the longest block, roughly: products, or what has to be decoded or read whatever the tokens.
double cost(const Problem& p, int tokens, const Shape& s) {
    const int64_t token_tiles = tiled(p) ? p.max_tiles : int64_t(p.groups) * ceil_div(tokens, s.tile_tokens);
    const int64_t tiles = token_tiles * ceil_div(p.rows, 128 * s.row_halves);
    const double stage = s.row_halves * std::max(4.0 * s.tile_tokens, 300.0);
    return double(ceil_div(tiles, multiprocessors())) * (p.depth / kWideDepth * stage + 3000);
}

Shape best_shape(const Problem& p, int tokens) {
    Shape best = {};
    for (int row_halves : {2, 1}) {
        for (int tile_tokens : {kWideTokens, kWideTokens / 2}) {
            if (tiled(p) && tile_tokens != kWideTokens) continue;  // tiles are made already
            const Shape shape = {row_halves, tiled(p) ? p.tile_tokens : tile_tokens};
            if (best.row_halves == 0 || cost(p, tokens, shape) < cost(p, tokens, best)) best = shape;
        }
    }
    return best;
}

WideParams params_of(const Problem& p, const Shape& shape) {
    const bool e2m1 = p.weight_format == Weight::kE2M1, e4m3 = p.weight_format == Weight::kE4M3;
    WideParams w = {};
    w.weight = static_cast<const uint8_t*>(p.weight), w.scale = p.scale;
    w.weight_row = e2m1 ? p.depth / 2 : e4m3 ? p.depth : 2 * p.depth;
    w.scale_row = e2m1 ? p.depth / 32 : p.depth / 128;
    w.weight_group = int64_t(p.rows) * w.weight_row;
    w.scale_group = int64_t(e2m1 ? p.rows : ceil_div(p.rows, 128)) * w.scale_row;
    w.groups = p.groups, w.rows = p.rows, w.depth = p.depth;
    w.x = static_cast<const __nv_bfloat16*>(p.x);
    w.x_row_stride = p.x_row_stride, w.x_group_stride = tiled(p) ? 0 : p.x_group_stride;
    w.gather = p.gather;
    w.tokens = p.tokens;
    w.tiles = p.tiles, w.num_tiles = p.num_tiles, w.max_tiles = p.max_tiles;
    w.tile_tokens = shape.tile_tokens;
    w.row_blocks = ceil_div(p.rows, 128 * shape.row_halves);
    w.token_tiles = ceil_div(p.tokens, shape.tile_tokens);
    w.swiglu = p.epilogue == Epilogue::kSwiglu;
    w.swiglu_limit = p.swiglu_limit;
    w.row_weights = p.row_weights;
    w.out = p.out, w.out_bf16 = p.out_dtype == DSV4_BF16;
    w.out_row_stride = p.out_row_stride, w.out_group_stride = tiled(p) ? 0 : p.out_group_stride;
    w.scatter = p.scatter;
    return w;
}

// The `rows` rows of x from row `first` on, prepared in the workspace.
void prepare(const Problem& p, int first, int rows, WideParams& w, void* workspace, cudaStream_t stream) {
    WideInputs inputs = {};
    const int64_t offset = first * p.x_row_stride;
    inputs.x = static_cast<const char*>(p.x) + offset * (p.x_dtype == DSV4_F8_E4M3 ? 1 : 2);
    inputs.x_scale = p.act == Act::kCodes ? p.x_scale + offset / 128 : nullptr;
    inputs.act = p.act;
    inputs.row_stride = p.x_row_stride, inputs.section_stride = p.x_group_stride;
    inputs.rows = rows, inputs.sections = sections(p), inputs.depth = p.depth;
    inputs.out = static_cast<__nv_bfloat16*>(workspace);
    wide_inputs(inputs, p.weight_format, stream);
    w.x = inputs.out;
    w.x_row_stride = int64_t(inputs.sections) * p.depth;
    w.x_group_stride = tiled(p) ? 0 : p.depth;
}

void start(const Problem& p, const WideParams& w, int row_halves, cudaStream_t stream) {
    const int64_t token_tiles = tiled(p) ? p.max_tiles : int64_t(w.groups) * w.token_tiles;
    const int blocks = static_cast<int>(std::min<int64_t>(token_tiles * w.row_blocks, multiprocessors()));
    if (blocks == 0) return;
    if (p.weight_format == Weight::kBf16) launch_wide<Weight::kBf16>(w, row_halves, blocks, stream);
    else if (p.weight_format == Weight::kE4M3) launch_wide<Weight::kE4M3>(w, row_halves, blocks, stream);
    else launch_wide<Weight::kE2M1>(w, row_halves, blocks, stream);
}

}  // namespace

bool wide_fits(const Problem& p) {
    const bool type = p.x_dtype == DSV4_BF16 || (p.x_dtype == DSV4_F8_E4M3 && p.act == Act::kCodes);
    const bool enough = tiled(p) ? p.tile_tokens >= kLeastTokens && p.tile_tokens <= kWideTokens
                                : p.tokens >= kLeastTokens;
    const bool rows = p.rows % (p.epilogue == Epilogue::kSwiglu ? 32 : 8) == 0 && p.depth % 128 == 0 && p.depth > 0;
    const int x_unit = p.act == Act::kCodes ? 128 : 16;
    const bool strides = p.x_row_stride % x_unit == 0 && p.x_group_stride % x_unit == 0 &&
                         p.out_row_stride % 4 == 0 && p.out_group_stride % 4 == 0;
    return compute_capability() == 90 && type && enough && rows && strides;
}

size_t wide_workspace(const Problem& p) {
    if (!prepares(p)) return 0;
    return size_t(p.x_rows > 0 ? p.x_rows : chunk_tokens(p)) * sections(p) * p.depth * 2;
}

void wide(const Problem& p, void* workspace, cudaStream_t stream) {
    DSV4_REQUIRE(!p.gather || p.x_rows > 0, "rows of x are picked, but how many it has is not said");
    const int chunk = chunk_tokens(p);
    for (int first = 0; first < p.tokens; first += chunk) {
        Problem part = p;
        part.tokens = std::min(chunk, p.tokens - first);
        if (p.scatter) {
            part.scatter = p.scatter + first;
        } else {
            part.out = static_cast<char*>(p.out) + first * p.out_row_stride * (p.out_dtype == DSV4_BF16 ? 2 : 4);
        }
        if (p.row_weights) part.row_weights = p.row_weights + first;
        const Shape shape = best_shape(part, part.tokens);
        WideParams w = params_of(part, shape);
        if (prepares(p)) prepare(p, first, p.x_rows > 0 ? p.x_rows : part.tokens, w, workspace, stream);
        start(part, w, shape.row_halves, stream);
    }
}

}  // namespace dsv4::gemm
