// Which family of kernels a product takes, by sizes and the device alone.
#include <algorithm>

#include "gemm/problem.h"

namespace dsv4::gemm {
namespace {

enum class Family { kExact, kSkinny, kWide };

constexpr int kWideFrom = 33;   // token rows for which measured `wide` products overtake `skinny` ones

bool empty(const Problem& p) { return p.tokens == 0 || p.rows == 0 || p.groups == 0; }

Family family(const Problem& p) {
    // both fast families take 128 of the depth at a time, with 16-byte accesses
    if (p.x_dtype == DSV4_F32 || p.depth % 128 || p.x_row_stride % 16 || p.x_group_stride % 16) return Family::kExact;
    const bool many = p.max_tiles > 0 || p.tokens >= kWideFrom;
    return many && wide_fits(p) ? Family::kWide : Family::kSkinny;
}

void check(const Problem& p) {
    const int block = p.act == Act::kNone && p.weight_format == Weight::kBf16    ? 1
                      : p.act == Act::kNone && p.weight_format == Weight::kE2M1 ? 32
                                                                                : 128;
    DSV4_REQUIRE(p.depth > 0 && p.depth % block == 0, "a depth of %d; expected a multiple of %d", p.depth, block);
    DSV4_REQUIRE(p.epilogue == Epilogue::kStore || p.rows % 2 == 0, "%d gate and up rows; expected as many of each",
                 p.rows);
    DSV4_REQUIRE((p.tiles != nullptr) == (p.max_tiles > 0), "at most %d tiles, but %s list of them", p.max_tiles,
                 p.tiles ? "a" : "no");
    DSV4_REQUIRE((p.x_dtype == DSV4_F8_E4M3) == (p.act == Act::kCodes), "x is %s e4m3, but %s taken for codes",
                 p.x_dtype == DSV4_F8_E4M3 ? "in" : "not in", p.act == Act::kCodes ? "is" : "is not");
}

void check_aligned(const void* address, const char* name) {
    DSV4_REQUIRE(reinterpret_cast<uintptr_t>(address) % 16 == 0, "'%s' is at %p; expected a multiple of 16", name,
                 address);
}

}  // namespace

int tile_tokens(int tokens, int groups, int x_dtype) {
    if (x_dtype == DSV4_F32) return 32;
    // few groups should need a second tile, which would read their weights again
    const int mean = ceil_div(tokens, std::max(groups, 1));
    if (mean <= 1) return kLeastTileTokens;
    if (mean <= 6) return 16;
    if (device().capability == 90) return 128;  // short tiles cost `wide` little
    if (mean <= 12) return 32;
    return 128;
}

size_t workspace(const Problem& problem) {
    if (empty(problem)) return 0;
    switch (family(problem)) {
        case Family::kWide: return wide_workspace(problem);
        case Family::kSkinny: return skinny_workspace(problem);
        default: return 0;
    }
}

size_t workspace_bound(const Problem& largest) {
    // other families need none
    return empty(largest) || largest.x_dtype == DSV4_F32 ? 0 : wide_workspace_bound(largest);
}

void run(const Problem& problem, void* workspace, cudaStream_t stream) {
    if (empty(problem)) return;
    check(problem);
    const Family chosen = family(problem);
    if (chosen == Family::kExact) return exact(problem, stream);
    check_aligned(problem.x, "x");
    check_aligned(problem.weight, "weight");
    if (problem.weight_format == Weight::kE2M1) check_aligned(problem.scale, "scale");
    if (chosen == Family::kWide) {
        wide(problem, workspace, stream);
    } else {
        skinny(problem, workspace, stream);
    }
}

}  // namespace dsv4::gemm
