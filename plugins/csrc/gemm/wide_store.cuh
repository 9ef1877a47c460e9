// A multiplying warpgroup's sums and how they leave it.
#pragma once

#include "common/numbers.cuh"
#include "common/pack.cuh"
#include "gemm/wide_tiles.cuh"

namespace dsv4::gemm {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// silu(gate) * up with torch's clamps, through which NaN passes; both were bf16 in between.
__device__ __forceinline__ float swiglu(float gate, float up, float limit) {
    gate = rounded<bf16>(gate), up = rounded<bf16>(up);
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : up < -limit ? -limit : up;
    return __fdividef(gate, 1 + __expf(-gate)) * up;
}

template <int kCount>
__device__ __forceinline__ void store_row(float* to, const float (&values)[kCount]) {
    Pack<float, kCount> pack;
#pragma unroll
    for (int i = 0; i < kCount; ++i) pack.at[i] = values[i];
    store_pack<kCount>(to, pack);
}

template <int kCount>
__device__ __forceinline__ void store_row(bf16* to, const float (&values)[kCount]) {
    if constexpr (kCount == 1) {
        *to = from_float<bf16>(values[0]);
    } else {
        Pack<__nv_bfloat162, kCount / 2> pack;
#pragma unroll
        for (int i = 0; i < kCount / 2; ++i) pack.at[i] = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
        *reinterpret_cast<Pack<__nv_bfloat162, kCount / 2>*>(to) = pack;
    }
}

// Of each token of the tile, for one warpgroup.
struct WideTokens {
    int row[kWideTokens];  // of out
    float weight[kWideTokens];
};

template <int kBlocks>
struct Sums {
    const WideParams& p;
    WideTokens& tokens;  // shared memory
    int thread, group;   // of this warpgroup, and which one it is
    // of rows g (two neighbouring tokens) and g + 8 (the same two), for every eight tokens
    float sums[kBlocks][kWideTokens / 2];

    __device__ Sums(const WideParams& p, WideTokens& tokens, int thread, int group)
        : p(p), tokens(tokens), thread(thread), group(group) {}

    __device__ int lane() const { return thread % 32; }
    __device__ int first_row() const { return (group * 4 + thread / 32) * 16 * kBlocks; }  // of the tile: this warp's

    __device__ void clear() {
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
            for (int i = 0; i < kWideTokens / 2; ++i) sums[block][i] = 0;
        }
    }

    // Brings what the end of the tile needs to shared memory while the products run.
    __device__ void fetch_tokens(const WideTile& tile) const {
        sync_warpgroup(1 + group);  // the tile before is stored
        const bool any = thread < tile.count;
        const int packed = tile.begin + thread;
        const uint32_t to = shared_address(tokens.row + thread);
        if (p.scatter) copy_or_clear_4(to, p.scatter + (any ? packed : 0), any);
        if (p.row_weights) copy_or_clear_4(to + sizeof tokens.row, p.row_weights + (any ? packed : 0), any);
        commit_copies();
    }

    // Of every `of` eights of tokens one, the `own`-th.
    template <bool kSwiglu, class Out>
    __device__ void store_rows(const WideTile& tile, int own, int of) const {
        const RowMap<kBlocks> map(p, tile.row_block);
        const int row = map.base(first_row() + lane() / 4);
        if (row >= map.limit) return;
        Out* out = static_cast<Out*>(p.out) + tile.group * p.out_group_stride + row;
        const int stride = static_cast<int>(p.out_row_stride);
#pragma unroll
        for (int i = 0; i < kWideTokens / 4; ++i) {
            const int token = i / 2 * 8 + lane() % 4 * 2 + i % 2, at = i / 2 * 4 + i % 2;
            if (token >= tile.count || (i / 2 & (of - 1)) != own) continue;
            Out* to = out + int64_t(p.scatter ? tokens.row[token] : tile.begin + token) * stride;
            if constexpr (kSwiglu) {
                const float weight = p.row_weights ? tokens.weight[token] : 1;
                float values[kBlocks];
#pragma unroll
                for (int k = 0; k < kBlocks; ++k) {
                    values[k] = swiglu(sums[k][at], sums[k][at + 2], p.swiglu_limit) * weight;
                }
                store_row(to, values);
            } else {
                float values[2 * kBlocks];
#pragma unroll
                for (int k = 0; k < 2 * kBlocks; ++k) values[k] = sums[k / 2][at + k % 2 * 2];
                store_row(to, values);
            }
        }
    }

    __device__ void store_tile(const WideTile& tile, int own = 0, int of = 1) const {
        wait_copies<0>();
        sync_warpgroup(1 + group);
        if (p.swiglu) {
            p.out_bf16 ? store_rows<true, bf16>(tile, own, of) : store_rows<true, float>(tile, own, of);
        } else {
            p.out_bf16 ? store_rows<false, bf16>(tile, own, of) : store_rows<false, float>(tile, own, of);
        }
    }
};

#endif

}  // namespace dsv4::gemm
