// Chooses tiles for a `wide` product, prepares its inputs and starts its kernel.
#include <algorithm>

#include "gemm/wide.h"

namespace dsv4::gemm {
namespace {

constexpr int kLeastTokens = 32;
constexpr int kLeastWideTile = 64;
constexpr int64_t kMostInputs = 128 << 20;  // bytes of prepared inputs at a time, where tokens can be split

// Sizes alone decide: where a workspace is asked for, pointers need not be set yet.
bool tiled(const Problem& p) { return p.max_tiles > 0; }

// Without tiles every group has its own section of a row of x.
int sections(const Problem& p) { return tiled(p) ? 1 : p.groups; }

struct Shape {
    int row_halves, tile_tokens;  // a tile has 128 * row_halves weight rows
    int splits;                   // blocks that share the depth of a tile
};

// Blocks that run at once, each alone on its multiprocessor. A cluster lies within a group of multiprocessors, and
// groups differ in size, so that some are left over.
int blocks_at_once(int splits) {
    return splits <= 2 ? device().multiprocessors / 2 * 2 : device().multiprocessors * 7 / 8 / splits * splits;
}

int64_t token_tiles(const Problem& p, int tokens, int tile_tokens) {
    return tiled(p) ? p.max_tiles : int64_t(p.groups) * ceil_div(tokens, tile_tokens);
}

// Cycles of the longest block, roughly: for 64 inputs what is decoded whatever the tokens, and products.
double cost(const Problem& p, int tokens, const Shape& s) {
    const int64_t tiles = token_tiles(p, tokens, s.tile_tokens) * ceil_div(p.rows, 128 * s.row_halves);
    const int width = std::min(s.tile_tokens, (tokens + 15) / 16 * 16);
    const double stage = 600 + 3.2 * width;
    const double rounds = ceil_div(tiles, blocks_at_once(s.splits) / s.splits);
    return rounds * (p.depth / 64.0 / s.splits * s.row_halves * stage + 3000) + (s.splits > 1 ? 2500 : 0);
}

bool possible(const Problem& p, const Shape& s) {
    return s.splits == 1 || (s.row_halves == 1 && !tiled(p) && s.tile_tokens <= kWideSplitTokens &&
                             p.depth / 128 >= s.splits);
}

Shape best_shape(const Problem& p, int tokens) {
    Shape best = {};
    for (int splits : {1, 2, 4, 8}) {
        for (int row_halves : {2, 1}) {
            for (int tile_tokens : {kWideTokens, kWideTokens / 2}) {
                const Shape shape = {row_halves, tiled(p) ? p.tile_tokens : tile_tokens, splits};
                if (!possible(p, shape)) continue;
                if (best.splits == 0 || cost(p, tokens, shape) < cost(p, tokens, best)) best = shape;
            }
        }
    }
    return best;
}

// What a row of x takes in the workspace; nothing where it is read from x itself.
int64_t row_bytes(const Problem& p) {
    return p.act == Act::kNone && p.weight_format == Weight::kBf16 ? 0 : int64_t(sections(p)) * p.depth * 2;
}

// Tokens whose inputs are prepared at once.
int chunk_tokens(const Problem& p) {
    const int64_t row = row_bytes(p);
    if (tiled(p) || p.x_rows > 0 || p.tokens * row <= kMostInputs) return p.tokens;
    return static_cast<int>(std::max<int64_t>(kMostInputs / row / kWideTokens, 1)) * kWideTokens;
}

WideParams params_of(const Problem& p, const Shape& shape) {
    const bool e2m1 = p.weight_format == Weight::kE2M1, e4m3 = p.weight_format == Weight::kE4M3;
    const int x_bytes = p.x_dtype == DSV4_F8_E4M3 ? 1 : 2;
    WideParams w = {};
    w.weight = static_cast<const uint8_t*>(p.weight), w.scale = p.scale;
    w.weight_row = e2m1 ? p.depth / 2 : e4m3 ? p.depth : 2 * p.depth;
    w.scale_row = e2m1 ? p.depth / 32 : p.depth / 128;
    w.weight_group = int64_t(p.rows) * w.weight_row;
    w.scale_group = int64_t(e2m1 ? p.rows : ceil_div(p.rows, 128)) * w.scale_row;
    w.groups = p.groups, w.rows = p.rows, w.depth = p.depth;
    w.x = static_cast<const uint8_t*>(p.x);
    w.x_row_stride = p.x_row_stride * x_bytes, w.x_group_stride = tiled(p) ? 0 : p.x_group_stride * x_bytes;
    w.gather = p.gather;
    w.tokens = p.tokens;
    w.tiles = p.tiles, w.num_tiles = p.num_tiles, w.max_tiles = p.max_tiles;
    w.tile_tokens = shape.tile_tokens, w.splits = shape.splits;
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

// Prepares `rows` rows of x in the workspace.
void prepare(const Problem& p, int rows, WideParams& w, void* workspace, cudaStream_t stream) {
    if (row_bytes(p) == 0) return;
    WideInputs inputs = {};
    inputs.x = p.x, inputs.x_scale = p.x_scale, inputs.act = p.act;
    inputs.row_stride = p.x_row_stride, inputs.section_stride = p.x_group_stride;
    inputs.rows = rows, inputs.sections = sections(p), inputs.depth = p.depth;
    inputs.out = workspace;
    wide_inputs(inputs, p.weight_format, stream);
    w.x = static_cast<const uint8_t*>(workspace);
    w.x_row_stride = row_bytes(p);
    w.x_group_stride = tiled(p) ? 0 : 2 * p.depth;
    w.after_inputs = true;
}

void start(const Problem& p, const WideParams& w, const Shape& shape, cudaStream_t stream) {
    const int64_t tiles = token_tiles(p, p.tokens, w.tile_tokens) * w.row_blocks;
    const int blocks = static_cast<int>(std::min<int64_t>(tiles, blocks_at_once(shape.splits) / shape.splits));
    if (blocks == 0) return;
    if (p.weight_format == Weight::kBf16) launch_wide<Weight::kBf16>(w, shape.row_halves, blocks, stream);
    else if (p.weight_format == Weight::kE4M3) launch_wide<Weight::kE4M3>(w, shape.row_halves, blocks, stream);
    else launch_wide<Weight::kE2M1>(w, shape.row_halves, blocks, stream);
}

// Tokens `first` .. `first + count` of a product.
Problem part_of(const Problem& p, int first, int count) {
    Problem part = p;
    part.tokens = count;
    part.x = static_cast<const char*>(p.x) + first * p.x_row_stride * (p.x_dtype == DSV4_F8_E4M3 ? 1 : 2);
    if (p.x_scale) part.x_scale = p.x_scale + first * (p.x_row_stride / 128);
    if (p.row_weights) part.row_weights = p.row_weights + first;
    if (p.scatter) part.scatter = p.scatter + first;
    else part.out = static_cast<char*>(p.out) + first * p.out_row_stride * (p.out_dtype == DSV4_BF16 ? 2 : 4);
    return part;
}

}  // namespace

bool wide_fits(const Problem& p) {
    const bool type = p.x_dtype == DSV4_BF16 || (p.x_dtype == DSV4_F8_E4M3 && p.act == Act::kCodes);
    const int tokens = tiled(p) ? p.tile_tokens : p.tokens;
    const bool enough = tiled(p) ? tokens >= kLeastWideTile && tokens <= kWideTokens : tokens >= kLeastTokens;
    const bool rows = p.rows % (p.epilogue == Epilogue::kSwiglu ? 32 : 8) == 0 && p.depth % 128 == 0 && p.depth > 0;
    const int x_unit = p.act == Act::kCodes ? 128 : 16;
    const bool strides = p.x_row_stride % x_unit == 0 && p.x_group_stride % x_unit == 0 &&
                         p.out_row_stride % 4 == 0 && p.out_group_stride % 4 == 0;
    return device().capability == 90 && type && enough && rows && strides;
}

size_t wide_workspace(const Problem& p) {
    return size_t(p.x_rows > 0 ? p.x_rows : chunk_tokens(p)) * row_bytes(p);
}

size_t wide_workspace_bound(const Problem& largest) {
    if (device().capability != 90) return 0;
    const int64_t row = row_bytes(largest);
    if (largest.x_rows > 0) return size_t(largest.x_rows) * row;
    const int64_t whole = largest.tokens * row;
    // the most of what is taken at once, for any number of tokens: see chunk_tokens
    return tiled(largest) ? whole : std::min(whole, std::max(kMostInputs, kWideTokens * row));
}

void wide(const Problem& p, void* workspace, cudaStream_t stream) {
    DSV4_REQUIRE(!p.gather || p.x_rows > 0, "rows of x are picked, but how many it has is not said");
    const int chunk = chunk_tokens(p);
    for (int first = 0; first < p.tokens; first += chunk) {
        const Problem part = part_of(p, first, std::min(chunk, p.tokens - first));
        const Shape shape = best_shape(part, part.tokens);
        WideParams w = params_of(part, shape);
        prepare(part, p.x_rows > 0 ? p.x_rows : part.tokens, w, workspace, stream);
        start(part, w, shape, stream);
    }
}

}  // namespace dsv4::gemm
