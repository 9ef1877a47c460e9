// Picks the block shape for few query tokens, and launches.
#include <algorithm>
#include <climits>
#include <span>

#include "sparse_attention/decode.cuh"

namespace dsv4::sparse_attention {
namespace {

// A shape, about how many cycles a block of it takes to start and end and for each tile, and its shared memory.
struct Cost {
    BlockShape shape;
    int fixed, tile, bytes;
};

template <Format F>
constexpr Cost kCosts[] = {
    {{64, 64}, 14000, 8000, Layout<F, 64, 64>::kBytes}, {{64, 32}, 14000, 5000, Layout<F, 64, 32>::kBytes},
    {{32, 64}, 11000, 5500, Layout<F, 32, 64>::kBytes}, {{16, 64}, 9000, 4200, Layout<F, 16, 64>::kBytes},
    {{16, 32}, 9000, 2600, Layout<F, 16, 32>::kBytes},
};
constexpr int kStaticBytes = 1024;  // shared memory that a block has besides

std::span<const Cost> costs(Format format) {
    if (format == Format::kFp8) return kCosts<Format::kFp8>;
    return kCosts<Format::kBf16>;
}

// About how long a plan takes: its waves of blocks, then, if keys are split, writing and merging partial results.
int64_t cycles(const Cost& cost, const Plan& plan, const Params& p, int rows, int64_t keys) {
    const int64_t tiles = ceil_div(keys, cost.shape.tile);
    const int64_t waves = ceil_div(int64_t(rows) * plan.head_blocks * plan.splits, device().multiprocessors);
    const int64_t block = cost.fixed + ceil_div(tiles, plan.splits) * int64_t(cost.tile);
    if (plan.splits == 1) return waves * block;
    const int64_t merge = 4000 + int64_t(rows) * p.heads * plan.splits;
    return waves * (block + cost.shape.heads * 100) + merge;
}

int shared_limit() { return device().shared_memory_optin - kStaticBytes; }

template <Format F>
void launch_shape(const Params& p, Rows rows, const Plan& plan, const Partials& partials, cudaStream_t stream) {
    if constexpr (F == Format::kFp8) {  // too large for the other on every device
        const bool largest = plan.shape.heads == 64 && plan.shape.tile == 64;
        if (largest) return launch_decode<F, 64, 64>(p, rows, plan, partials, stream);
    }
    if (plan.shape.heads == 64) return launch_decode<F, 64, 32>(p, rows, plan, partials, stream);
    if (plan.shape.heads == 32) return launch_decode<F, 32, 64>(p, rows, plan, partials, stream);
    if (plan.shape.tile == 64) return launch_decode<F, 16, 64>(p, rows, plan, partials, stream);
    launch_decode<F, 16, 32>(p, rows, plan, partials, stream);
}

}  // namespace

Plan Plan::of(const Params& p, Rows rows) {
    const int64_t keys = std::max<int64_t>(p.most_keys(), 1);
    Plan best{};
    int64_t least = INT64_MAX;
    for (const Cost& cost : costs(p.format)) {
        if (cost.shape.heads > std::max(16, p.heads) || cost.bytes > shared_limit()) continue;
        Plan plan{cost.shape, ceil_div(p.heads, cost.shape.heads), 1};
        const int blocks = std::max(1, rows.count) * plan.head_blocks;
        plan.splits = std::clamp(device().multiprocessors / blocks, 1, ceil_div(keys, cost.shape.tile));
        const int64_t found = cycles(cost, plan, p, rows.count, keys);
        if (found < least) best = plan, least = found;
    }
    return best;
}

bool decode_fits(const Params& p) {
    const bool whole = p.swa.pool.page_bytes % 16 == 0 && (p.ratio == 0 || p.compressed.pool.page_bytes % 16 == 0);
    const bool room = p.format != Format::kFp32 && costs(p.format).back().bytes <= shared_limit();
    return room && whole && p.bf16 && p.round_probs && p.dim == kDecodeDim && p.rope_pairs == kDecodeRopePairs;
}

size_t decode_workspace(const Params& p, Rows rows) {
    const Plan plan = Plan::of(p, rows);
    return plan.splits > 1 ? Partials::bytes(p, rows, plan) : 0;
}

size_t decode_workspace_bound(const Params& largest) {
    int most_heads = 0, least_tile = INT_MAX;
    for (const Cost& cost : costs(largest.format)) {
        if (cost.bytes > shared_limit()) continue;
        most_heads = std::max(most_heads, cost.shape.heads);
        least_tile = std::min(least_tile, cost.shape.tile);
    }
    const int64_t keys = std::max<int64_t>(largest.most_keys(), 1);
    const int64_t all = int64_t(largest.tokens) * largest.heads * ceil_div(keys, least_tile);
    // where keys are split, blocks are no more than multiprocessors, each with partial results of its heads
    const int64_t split = int64_t(kMostMultiprocessors) * std::min(most_heads, largest.heads);
    return Partials::bytes(std::min(all, split));
}

void decode(const Params& p, Rows rows, void* workspace, cudaStream_t stream) {
    const bool wide = aligned(p.q, 16) && aligned(p.kv, 16) && aligned(p.out, 16) && aligned(p.swa.pool.bytes, 16) &&
                      aligned(p.compressed.pool.bytes, 16);
    DSV4_REQUIRE(wide, "an address of sparse_attention is no multiple of 16; expected aligned tensors");
    const Plan plan = Plan::of(p, rows);
    const Partials partials = Partials::of(p, rows, plan, workspace);
    if (p.format == Format::kFp8) {
        launch_shape<Format::kFp8>(p, rows, plan, partials, stream);
    } else {
        launch_shape<Format::kBf16>(p, rows, plan, partials, stream);
    }
    if (plan.splits > 1) combine(p, rows, plan, partials, stream);
}

}  // namespace dsv4::sparse_attention
