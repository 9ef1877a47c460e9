// One tile of keys in shared memory against the queries of a block: scores, softmax, values. Eight warps.
//
//   scores  a warp takes kM * 16 heads, 32 keys and a part of the channels; the parts are added in the softmax
//   softmax a head's keys are spread over 256 / Heads threads, which keep its peak and their share of its total
//   values  a warp takes all heads and 64 of the channels
#pragma once

#include "common/mma.cuh"
#include "common/numbers.cuh"
#include "common/shared_memory.cuh"
#include "sparse_attention/decode_layout.cuh"

namespace dsv4::sparse_attention {

constexpr float kLog2e = 1.4426950408889634f;

// d += a [16, 16] * b [16, 8]
__device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    mma_bf16(d, a[0], a[1], a[2], a[3], b0, b1);
}

// Scores of the tile, one part of the channels, to `scores[part][head][key]`.
template <class L, int Heads, int Tile>
__device__ __forceinline__ void score_tile(uint8_t* memory) {
    constexpr int kM = Heads / 16 / L::kSplitHeads, kSteps = kDecodeDim / 16 / L::kSplitChannels;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int head = warp % L::kSplitHeads * (kM * 16);
    const int key = warp / L::kSplitHeads % L::kSplitKeys * 32;
    const int part = warp / (L::kSplitHeads * L::kSplitKeys);
    const uint32_t q = shared_address(memory + L::kQuery + swizzled(head + lane % 16, part * kSteps * 2 + lane / 16));
    const uint32_t k = shared_address(memory + L::kTile) +
                       swizzled(key + lane % 8 + lane / 16 * 8, part * kSteps * 2 + lane / 8 % 2);
    float sums[kM][4][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
        uint32_t a[kM][4], b[2][4];
#pragma unroll
        for (int m = 0; m < kM; ++m) load_matrices(a[m], moved(q, step * 2) + m * 16 * kRowBytes);
#pragma unroll
        for (int n = 0; n < 2; ++n) load_matrices(b[n], moved(k, step * 2) + n * 16 * kRowBytes);
#pragma unroll
        for (int m = 0; m < kM; ++m) {
#pragma unroll
            for (int n = 0; n < 4; ++n) multiply(sums[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
        }
    }
    float* scores = reinterpret_cast<float*>(memory + L::kScores) +
                    (part * Heads + head + lane / 4) * L::kScoreStride + key + lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            float* at = scores + m * 16 * L::kScoreStride + n * 8;
            *reinterpret_cast<float2*>(at) = {sums[m][n][0], sums[m][n][1]};
            *reinterpret_cast<float2*>(at + 8 * L::kScoreStride) = {sums[m][n][2], sums[m][n][3]};
        }
    }
}

// The softmax of a head over the tiles so far, in powers of two.
struct Softmax {
    float peak = -INFINITY;
    float total = 0;  // of this thread's keys
};

// A head whose scores are all -inf has no use for its peak.
__device__ __forceinline__ float peak_or_zero(float peak) { return peak == -INFINITY ? 0.0f : peak; }

// Turns scores into probabilities, rounded to bf16, and says by how much each head's earlier sums shrink.
template <class L, int Heads, int Tile>
__device__ __forceinline__ void softmax_tile(uint8_t* memory, float scale, Softmax& softmax) {
    constexpr int kThreadsPerHead = kDecodeThreads / Heads, kPairs = Tile / 2 / kThreadsPerHead;
    const int head = threadIdx.x / kThreadsPerHead, part = threadIdx.x % kThreadsPerHead;
    const float* scores = reinterpret_cast<const float*>(memory + L::kScores) + head * L::kScoreStride + part * 2;
    const uint8_t* seen = memory + L::kSeen + part * 2;
    float2 x[kPairs];
    float peak = softmax.peak;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
        const int key = i * kThreadsPerHead * 2;
        float2 sum{0, 0};
#pragma unroll
        for (int channels = 0; channels < L::kSplitChannels; ++channels) {
            const float2 more = *reinterpret_cast<const float2*>(scores + channels * Heads * L::kScoreStride + key);
            sum.x += more.x;
            sum.y += more.y;
        }
        x[i].x = seen[key] ? sum.x * scale : -INFINITY;
        x[i].y = seen[key + 1] ? sum.y * scale : -INFINITY;
        peak = fmaxf(peak, fmaxf(x[i].x, x[i].y));
    }
#pragma unroll
    for (int offset = kThreadsPerHead / 2; offset > 0; offset /= 2) {
        peak = fmaxf(peak, __shfl_xor_sync(0xFFFFFFFFu, peak, offset));
    }
    const float base = peak_or_zero(peak);
    const float keep = exp2f(softmax.peak - base);
    softmax.peak = peak;
    softmax.total *= keep;
    bf16* probs = reinterpret_cast<bf16*>(memory + L::kProbs) + head * L::kProbStride + part * 2;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
        const float2 p{exp2f(x[i].x - base), exp2f(x[i].y - base)};
        softmax.total += p.x + p.y;
        *reinterpret_cast<__nv_bfloat162*>(probs + i * kThreadsPerHead * 2) = __floats2bfloat162_rn(p.x, p.y);
    }
    if (part == 0) reinterpret_cast<float*>(memory + L::kHeadNumbers)[head] = keep;
}

// Sums of values: heads m * 16 + lane / 4 (+ 8), channels n * 8 + lane % 4 * 2 (+ 1) of the warp's.
template <int Heads>
using Values = float[Heads / 16][kWarpChannels / 8][4];

template <class L, int Heads, int Tile>
__device__ __forceinline__ void add_values(const uint8_t* memory, Values<Heads>& values) {
    constexpr int kM = Heads / 16, kN = kWarpChannels / 8;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const float* keep = reinterpret_cast<const float*>(memory + L::kHeadNumbers) + lane / 4;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
        const float low = keep[m * 16], high = keep[m * 16 + 8];
#pragma unroll
        for (int n = 0; n < kN; ++n) {
            values[m][n][0] *= low;
            values[m][n][1] *= low;
            values[m][n][2] *= high;
            values[m][n][3] *= high;
        }
    }
    const uint32_t probs = shared_address(memory + L::kProbs) + (lane % 16) * L::kProbStride * 2 + lane / 16 * 16;
    const uint32_t tile = shared_address(memory + L::kTile + swizzled(lane % 16, warp * (kWarpChannels / 8) + lane / 16));
#pragma unroll
    for (int step = 0; step < Tile / 16; ++step) {
        uint32_t a[kM][4];
#pragma unroll
        for (int m = 0; m < kM; ++m) load_matrices(a[m], probs + m * 16 * L::kProbStride * 2 + step * 32);
#pragma unroll
        for (int n = 0; n < kN / 2; ++n) {
            uint32_t b[4];
            load_matrices_transposed(b, moved(tile, n * 2) + step * 16 * kRowBytes);
#pragma unroll
            for (int m = 0; m < kM; ++m) {
                multiply(values[m][n * 2], a[m], b[0], b[1]);
                multiply(values[m][n * 2 + 1], a[m], b[2], b[3]);
            }
        }
    }
}

}  // namespace dsv4::sparse_attention
