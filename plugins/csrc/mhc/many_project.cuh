// The projection of a tile on tensor cores, to fp32 accuracy: streams are bf16 exactly, fn is three bf16 parts.
//
// Which channels the sixteen places of a matrix product's depth stand for is free, as long as both sides
// agree: places 2t, 2t + 1, 2t + 8 and 2t + 9 of step s are channels 8t + 4s .. 8t + 4s + 3 of a chunk of 32,
// so that a thread's channels of a token lie side by side.
#pragma once

#include "common/mma.cuh"
#include "mhc/many_tile.cuh"

namespace dsv4::mhc {

struct Fragment {  // of a matrix product's right side: two pairs of bf16 for a thread
    uint32_t pair0, pair1;
};

// Two fp32 values as sums of three bf16 each, exactly.
struct Split {
    uint32_t high, mid, low;

    __device__ __forceinline__ Split(float x, float y) {
        high = take(x, y);
        mid = take(x, y);
        low = take(x, y);
    }

    // The nearest bf16 pair; x and y keep what it leaves.
    __device__ __forceinline__ static uint32_t take(float& x, float& y) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
        x -= __low2float(pair);
        y -= __high2float(pair);
        return reinterpret_cast<const uint32_t&>(pair);
    }
};

// d += a * b for 16 tokens, 16 channels and 8 columns.
__device__ __forceinline__ void multiply(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                         const Fragment& b) {
    mma_bf16(d, a0, a1, a2, a3, b.pair0, b.pair1);
}

// fn for this warp: two parts into registers, the third to `low`.
template <int Chunks>
__device__ __forceinline__ void split_fn(const Params& p, int begin, Fragment (&high)[Chunks][2][3],
                                         Fragment (&mid)[Chunks][2][3], Fragment* low) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t row = int64_t(kStreams) * p.hidden;
    const float* fn = p.site.fn + (lane / 4) * row + int64_t(warp / 2) * p.hidden + begin +
                      warp % 2 * 32 * Chunks + lane % 4 * 8;
#pragma unroll
    for (int q = 0; q < Chunks; ++q) {
#pragma unroll
        for (int i = 0; i < 6; ++i) {
            const int step = i / 3, n = i % 3;
            const Pack<float, 4> w = load_pack<4>(fn + n * 8 * row + 32 * q + 4 * step);
            const Split first(w.at[0], w.at[1]), second(w.at[2], w.at[3]);
            high[q][step][n] = {first.high, second.high};
            mid[q][step][n] = {first.mid, second.mid};
            low[(q * 6 + i) * kThreads + threadIdx.x] = {first.low, second.low};
        }
    }
}

// The dot products of a tile with this warp's part of fn, and its squares, to `partial`.
template <class L, int Chunks>
__device__ __forceinline__ void project(const char* tile, const Fragment (&high)[Chunks][2][3],
                                        const Fragment (&mid)[Chunks][2][3], const Fragment* low,
                                        float (*partial)[kSums]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    float sums[L::kMTiles][3][4] = {}, squares[L::kMTiles][2][4] = {};
    const char* x = tile + g * L::kRow + warp / 2 * L::kSlice + warp % 2 * 64 * Chunks + 16 * t;
#pragma unroll
    for (int q = 0; q < Chunks; ++q) {
        uint4 top[L::kMTiles], bottom[L::kMTiles];  // tokens g and g + 8
#pragma unroll
        for (int m = 0; m < L::kMTiles; ++m) {
            top[m] = *reinterpret_cast<const uint4*>(x + 16 * m * L::kRow + 64 * q);
            bottom[m] = *reinterpret_cast<const uint4*>(x + (16 * m + 8) * L::kRow + 64 * q);
        }
#pragma unroll
        for (int step = 0; step < 2; ++step) {
            Fragment least[3];
#pragma unroll
            for (int n = 0; n < 3; ++n) least[n] = low[(q * 6 + step * 3 + n) * kThreads + threadIdx.x];
#pragma unroll
            for (int m = 0; m < L::kMTiles; ++m) {
                const uint32_t a0 = step == 0 ? top[m].x : top[m].z, a2 = step == 0 ? top[m].y : top[m].w;
                const uint32_t a1 = step == 0 ? bottom[m].x : bottom[m].z, a3 = step == 0 ? bottom[m].y : bottom[m].w;
#pragma unroll
                for (int n = 0; n < 3; ++n) multiply(sums[m][n], a0, a1, a2, a3, least[n]);
                multiply(squares[m][0], a0, a1, a2, a3, {a0, a2});  // products of all tokens with tokens 0 .. 7
#pragma unroll
                for (int n = 0; n < 3; ++n) multiply(sums[m][n], a0, a1, a2, a3, mid[q][step][n]);
                multiply(squares[m][1], a0, a1, a2, a3, {a1, a3});  // and with tokens 8 .. 15
#pragma unroll
                for (int n = 0; n < 3; ++n) multiply(sums[m][n], a0, a1, a2, a3, high[q][step][n]);
            }
        }
    }
#pragma unroll
    for (int m = 0; m < L::kMTiles; ++m) {
        float* above = partial[warp * L::kTile + 16 * m + g];
        float* below = above + 8 * kSums;
#pragma unroll
        for (int n = 0; n < 3; ++n) {
            store_pack(above + n * 8 + 2 * t, Pack<float, 2>{sums[m][n][0], sums[m][n][1]});
            store_pack(below + n * 8 + 2 * t, Pack<float, 2>{sums[m][n][2], sums[m][n][3]});
        }
        if (g / 2 == t) {  // the diagonal; what is beside it mixes tokens, NaN too, and is dropped
            above[kMix] = g % 2 == 0 ? squares[m][0][0] : squares[m][0][1];
            below[kMix] = g % 2 == 0 ? squares[m][1][2] : squares[m][1][3];
        }
    }
}

}  // namespace dsv4::mhc
