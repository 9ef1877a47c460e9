// How a skinny product divides its work: by sizes and the device alone.
#include "gemm/skinny.h"

#include <algorithm>

namespace dsv4::gemm {
namespace {

// Rough costs on an H200, in ns. They only rank shapes against one another.
constexpr double kBytesPerNs = 4150;    // memory, the whole device
constexpr double kProcessorBytesPerNs = 45;
constexpr double kStep = 200;           // one step of a warp that has little company
constexpr double kStageStep = 5;        // activations of one token row and step
constexpr double kPhase = 800;          // waiting for activations again
constexpr double kItem = 500;           // until the first weights of a work item are there
constexpr double kNoNext = 1000;        // the next kernel finds no room to start early
constexpr double kBlockSum = 200;       // adding up the warps of a block

// Adding up the blocks of a cluster.
double cluster_sum(int split) { return split == 1 ? 0 : split == 2 ? 600 : split == 4 ? 1100 : 1700; }

constexpr int kStepDepth = 128;

struct Work {
    int jobs;       // work items beside one another but for row tiles
    int mtiles;     // tiles of 16 weight rows
    int steps;
    double bytes;   // of weights that all jobs read
    int slots;      // blocks that run at a time
    int processors;
    bool large;     // a part with 227 KiB of shared memory, not 99
};

double row_bytes(const Problem& p) {
    switch (p.weight_format) {
        case Weight::kBf16: return 2.0 * p.depth;
        case Weight::kE4M3: return p.depth;
        default: return p.depth * (0.5 + 1.0 / 32);
    }
}

size_t round_bytes(const Shape& s) {
    return size_t(kWarps / s.row_warps) * (s.max_tokens * kTokenSlots * 16 + s.token_tiles * 32);
}

constexpr size_t kHalfShared = 112 << 10;   // of a multiprocessor of a data centre part, for one of two blocks

// Shared memory of a block. Blocks that have a multiprocessor each may take nearly all of it.
size_t most_shared(const Shape& s, const Work& work) {
    if (!work.large) return 98 << 10;
    const int64_t blocks = int64_t(work.jobs) * s.row_tiles * s.split;
    return blocks <= work.processors && s.split <= 2 ? 220 << 10 : kHalfShared;
}

// A cluster needs neighbours that are free at the same time: too many large ones wait for one another.
bool crowded(const Shape& s, const Work& work) {
    const int64_t blocks = int64_t(work.jobs) * s.row_tiles * s.split;
    return s.split > 1 && blocks > (s.split == 2 ? work.processors : work.processors * 3 / 4);
}

// Fills in what follows from row_warps and split; false for shapes that do not fit.
bool complete(Shape& s, const Work& work, size_t ring_bytes) {
    s.row_tiles = ceil_div(work.mtiles, s.row_warps);
    if (crowded(s, work)) return false;
    const size_t budget = most_shared(s, work);
    const size_t rounds = ceil_div(ceil_div(work.steps, s.split), kWarps / s.row_warps);
    s.stage_bytes = static_cast<int>(std::min(rounds, (budget - ring_bytes) / round_bytes(s)) * round_bytes(s));
    const size_t sums = size_t(s.token_tiles) * kWarps * 512;
    s.shared_bytes = std::max(ring_bytes + s.stage_bytes, sums);
    return s.stage_bytes > 0;
}

double cost(const Shape& s, const Work& work) {
    const int depth_warps = kWarps / s.row_warps;
    const double blocks = double(work.jobs) * s.row_tiles * s.split;
    const double waves = std::max(1.0, blocks / work.slots);
    const int steps = ceil_div(work.steps, s.split), rounds = ceil_div(steps, depth_warps);
    const double alone = rounds * kStep;
    const double stream = std::max(work.bytes / kBytesPerNs,
                                   work.bytes / (std::min<double>(blocks, work.processors) * kProcessorBytesPerNs));
    const int phases = ceil_div(rounds * round_bytes(s), s.stage_bytes);
    const double item = kItem + kStageStep * s.max_tokens * steps + kPhase * (phases - 1) +
                        (depth_warps > 1 ? kBlockSum : 0) + cluster_sum(s.split) +
                        (s.shared_bytes > kHalfShared ? kNoNext : 0);
    // blocks that run at the same time hide about half of what others wait for; the last ones run alone
    return std::max(stream, alone) + (waves > 1 ? alone / 2 : 0) + item * (1 + waves) / 2;
}

}  // namespace

Shape skinny_shape(const Problem& p, size_t ring_bytes) {
    Shape s = {};
    const int most = p.max_tiles > 0 ? p.tile_tokens : p.tokens;
    s.max_tokens = std::min(most, kSkinnyTokens);
    s.token_tiles = s.max_tokens <= 8 ? 1 : s.max_tokens <= 16 ? 2 : s.max_tokens <= 32 ? 4 : 8;
    s.subtiles = ceil_div(most, s.max_tokens);
    const int processors = device().multiprocessors, slots = (s.token_tiles == 8 ? 1 : kResident) * processors;
    const int jobs = (p.max_tiles > 0 ? p.max_tiles : p.groups) * s.subtiles;
    const Work work = {jobs, ceil_div(p.rows, 16), p.depth / kStepDepth, row_bytes(p) * p.rows * jobs, slots,
                       processors, device().capability < 120};

    Shape best = {};
    double least = 0;
    for (int row_warps = kWarps; row_warps >= 1; row_warps /= 2) {
        for (int split = 1; split <= 8; split *= 2) {
            if (split > 1 && split * (kWarps / row_warps) > work.steps) continue;
            s.row_warps = row_warps, s.split = split;
            if (!complete(s, work, ring_bytes)) continue;
            const double time = cost(s, work);
            if (best.blocks == 0 || time < least) best = s, least = time, best.blocks = 1;
        }
    }
    int64_t items = int64_t(jobs) * best.row_tiles;
    // a bound on tiles is far above what is there: blocks go round instead of finding nothing to do
    if (p.max_tiles > 0) items = std::min<int64_t>(items, slots / best.split);
    DSV4_REQUIRE(items * best.split < int64_t(1) << 31, "%d token rows by %d weight rows are too many", p.tokens,
                 p.rows);
    best.blocks = static_cast<int>(items * best.split);
    return best;
}

size_t skinny_workspace(const Problem&) { return 0; }

void skinny(const Problem& problem, void*, cudaStream_t stream) {
    switch (problem.weight_format) {
        case Weight::kBf16: return skinny_bf16(problem, stream);
        case Weight::kE4M3: return skinny_e4m3(problem, stream);
        case Weight::kE2M1: return skinny_e2m1(problem, stream);
    }
}

}  // namespace dsv4::gemm
