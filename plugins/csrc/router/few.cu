// Logits of a few tokens: the gate is read once for 64 of them, spread over all multiprocessors.
//
// A block takes 16 experts and one part of the depth, its warps cut that part again. Products of bf16 are
// exact in fp32; the partial sums are added in a fixed order. A dot product does not mind in which order its
// terms come, so each lane loads 16 bytes in a row and calls them the columns that its fragments ask for.
#include <algorithm>

#include "common/dependent_launch.cuh"
#include "common/mma.cuh"
#include "common/numbers.cuh"
#include "router/router.h"

namespace dsv4::router {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kExperts = 16;            // of a block: rows of a fragment
constexpr int kMostTokens = 64;         // of a block
constexpr int kUnit = 64;               // columns that a warp takes at a time: 128 bytes of a row
constexpr int kStride = kExperts + 4;   // of a token's sums in shared memory; free of bank conflicts

// 16 bytes of a row, zeros outside the matrix. Volatile, so that all loads are on their way before the first
// product waits for one.
__device__ __forceinline__ uint4 load(const bf16* matrix, int row, int rows, int column, int depth) {
    const bool inside = row < rows && column < depth;
    const bf16* from = matrix + (inside ? int64_t(row) * depth + column : 0);
    uint4 to;
    asm volatile(
        "{\n.reg .pred inside;\nsetp.ne.b32 inside, %5, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\n"
        "mov.b32 %3, 0;\n@inside ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
        : "=&r"(to.x), "=&r"(to.y), "=&r"(to.z), "=&r"(to.w)
        : "l"(from), "r"(int(inside)));
    return to;
}

// What a lane needs of one unit of the gate: 16 experts by 64 columns.
struct Unit {
    uint4 low[2], high[2];  // experts 0..7 and 8..15, by halves of the columns

    __device__ __forceinline__ void load_from(const Params& p, int expert, int start) {
        const bf16* gate = static_cast<const bf16*>(p.gate);
        const int row = expert + threadIdx.x % 32 / 4;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int column = start + half * 32 + threadIdx.x % 4 * 8;
            low[half] = load(gate, row, p.experts, column, p.depth);
            high[half] = load(gate, row + 8, p.experts, column, p.depth);
        }
    }
};

// Takes kTiles times 8 tokens.
template <int kTiles>
__global__ void __launch_bounds__(kThreads) kernel(Params p) {
    __shared__ float sums[kWarps][kTiles * 8 * kStride];
    const bf16* x = static_cast<const bf16*>(p.x);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = lane / 4, quarter = lane % 4;
    const int expert_tiles = (p.experts + kExperts - 1) / kExperts;
    const int expert = blockIdx.x % expert_tiles * kExperts;
    const int split = blockIdx.x / expert_tiles % p.splits;
    const int first = blockIdx.x / expert_tiles / p.splits * kTiles * 8;

    int start = (split * kWarps + warp) * kUnit;
    Unit next;
    next.load_from(p, expert, start);  // zeros behind the last column
    wait_for_previous();
    allow_next();
    float sum[kTiles][4] = {};
    while (start < p.depth) {
        const Unit unit = next;
        uint4 token[kTiles][2];
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int column = start + half * 32 + quarter * 8;
                token[tile][half] = load(x, first + tile * 8 + row, p.tokens, column, p.depth);
            }
        }
        start += p.splits * kWarps * kUnit;
        next.load_from(p, expert, start);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int tile = 0; tile < kTiles; ++tile) {
                const uint4 a = unit.low[half], b = unit.high[half], t = token[tile][half];
                mma_bf16(sum[tile], a.x, b.x, a.y, b.y, t.x, t.y);
                mma_bf16(sum[tile], a.z, b.z, a.w, b.w, t.z, t.w);
            }
        }
    }

#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int token = tile * 8 + quarter * 2 + i % 2;
            sums[warp][token * kStride + row + i / 2 * 8] = sum[tile][i];
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < kTiles * 8 * kExperts; i += kThreads) {
        const int token = i / kExperts, column = i % kExperts;
        if (first + token >= p.tokens || expert + column >= p.experts) continue;
        float total = 0;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) total += sums[w][token * kStride + column];
        p.logits[(int64_t(split) * p.tokens + first + token) * p.experts + expert + column] = total;
    }
}

int most_splits(int depth) { return ceil_div(depth, kUnit * kWarps); }  // so that every warp has a unit

}  // namespace

int few_splits(int tokens, int experts, int depth) {
    const int wanted = device().multiprocessors / (ceil_div(experts, kExperts) * ceil_div(tokens, kMostTokens));
    const int most = most_splits(depth);
    return wanted < 1 ? 1 : wanted < most ? wanted : most;
}

int64_t few_logits_bound(int tokens, int experts, int depth) {
    const int64_t whole = int64_t(tokens) * experts;
    // split blocks are no more than multiprocessors, each with at most kExperts * kMostTokens logits
    const int64_t split = int64_t(kMostMultiprocessors) * kExperts * kMostTokens;
    return std::max(whole, std::min(split, whole * most_splits(depth)));
}

void few(const Params& p, cudaStream_t stream) {
    const auto chosen = p.tokens <= 8 ? kernel<1> : p.tokens <= 16 ? kernel<2> : p.tokens <= 32 ? kernel<4> : kernel<8>;
    const int blocks = ceil_div(p.experts, kExperts) * p.splits * ceil_div(p.tokens, kMostTokens);
    launch_dependent("router.few", chosen, blocks, kThreads, 0, stream, p);
}

}  // namespace dsv4::router
