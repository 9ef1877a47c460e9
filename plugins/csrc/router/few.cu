// Logits of a few tokens: the gate is read once for 64 of them, spread over all multiprocessors.
//
// A block takes 16 experts and one part of the depth, its warps cut that part again. Products of bf16 are
// exact in fp32; the partial sums are added in a fixed order. A dot product does not mind in which order its
// terms come, so each lane loads 16 bytes in a row and calls them the columns that its fragments ask for.
#include "common/dependent_launch.cuh"
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

__device__ __forceinline__ void multiply(float (&sum)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                         uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint4 load(const bf16* matrix, int row, int rows, int column, int depth) {
    if (row >= rows || column >= depth) return make_uint4(0, 0, 0, 0);
    return *reinterpret_cast<const uint4*>(matrix + int64_t(row) * depth + column);
}

// Takes kTiles times 8 tokens.
template <int kTiles>
__global__ void __launch_bounds__(kThreads) kernel(Params p) {
    __shared__ float sums[kWarps][kTiles * 8 * kStride];
    allow_next();
    const bf16* x = static_cast<const bf16*>(p.x);
    const bf16* gate = static_cast<const bf16*>(p.gate);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = lane / 4, quarter = lane % 4;
    const int expert = blockIdx.x * kExperts, first = blockIdx.z * kTiles * 8;

    float sum[kTiles][4] = {};
    const int step = p.splits * kWarps * kUnit;
    for (int start = (blockIdx.y * kWarps + warp) * kUnit; start < p.depth; start += step) {
        uint4 low[2], high[2], token[kTiles][2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int column = start + half * 32 + quarter * 8;
            low[half] = load(gate, expert + row, p.experts, column, p.depth);
            high[half] = load(gate, expert + row + 8, p.experts, column, p.depth);
        }
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int column = start + half * 32 + quarter * 8;
                token[tile][half] = load(x, first + tile * 8 + row, p.tokens, column, p.depth);
            }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int tile = 0; tile < kTiles; ++tile) {
                const uint4 a = low[half], b = high[half], t = token[tile][half];
                multiply(sum[tile], a.x, b.x, a.y, b.y, t.x, t.y);
                multiply(sum[tile], a.z, b.z, a.w, b.w, t.z, t.w);
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
        p.logits[(int64_t(blockIdx.y) * p.tokens + first + token) * p.experts + expert + column] = total;
    }
}

}  // namespace

int few_splits(int tokens, int experts, int depth) {
    const int wanted = multiprocessors() / (ceil_div(experts, kExperts) * ceil_div(tokens, kMostTokens));
    const int most = ceil_div(depth, kUnit * kWarps);  // so that every warp has a unit
    return wanted < 1 ? 1 : wanted < most ? wanted : most;
}

void few(const Params& p, cudaStream_t stream) {
    const auto chosen = p.tokens <= 8 ? kernel<1> : p.tokens <= 16 ? kernel<2> : p.tokens <= 32 ? kernel<4> : kernel<8>;
    const dim3 grid(ceil_div(p.experts, kExperts), p.splits, ceil_div(p.tokens, kMostTokens));
    chosen<<<grid, kThreads, 0, stream>>>(p);
    check_launch("router.few");
}

}  // namespace dsv4::router
