// The two warpgroups of `wide` that multiply, and what they do with the sums.
#pragma once

#include "common/pack.cuh"
#include "common/reduce.cuh"
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

template <Weight kFormat, int kBlocks>
struct Consumer {
    using Layout = Shared<kFormat, kBlocks>;

    // Of each token of the tile, for this warpgroup.
    struct Tokens {
        int row[kWideTokens];  // of out
        float weight[kWideTokens];
    };

    const WideParams& p;
    const char* stages;      // shared memory
    Tokens& tokens;
    uint32_t full, empty;
    int thread, group;       // of this warpgroup, and which one it is
    int slot = 0;
    uint32_t phase = 0;
    float sums[kBlocks][64];
    uint32_t nans;                // kE4M3: bits 8 * i + 7 - (2 * block + half) of rows that had a NaN code
    uint32_t scales[2];           // kE4M3: of rows g and g + 8, for the present 128 inputs
    uint8_t next_scales[2];
    uint32_t scale_at[2];         // offsets of theirs

    __device__ int lane() const { return thread % 32; }
    __device__ int first_row() const { return (group * 4 + thread / 32) * 16 * kBlocks; }  // of the tile: this warp's

    __device__ void release(int used) const {
        __syncwarp();
        if (lane() == 0) barrier_arrive(empty + used * 8);
    }

    __device__ void fetch_scales(int depth_block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) next_scales[half] = __ldg(p.scale + (scale_at[half] + depth_block));
    }

    // At each stage; every second one begins another 128 inputs, whose scales were fetched two stages ago.
    __device__ void advance_scales(int stage) {
        if constexpr (kFormat == Weight::kE4M3) {
            if (stage % 2) return;
#pragma unroll
            for (int half = 0; half < 2; ++half) scales[half] = scale2(next_scales[half]);
            if (stage + 2 < p.depth / kWideDepth) fetch_scales(stage / 2 + 1);
        }
    }

    __device__ void decode(uint32_t (&a)[16], int block, int stage) {
        const char* at = stages + slot * Layout::kStage;
        const int rows = first_row() + 16 * block;
        if constexpr (kFormat == Weight::kBf16) {
            Decoder<kFormat>::fragment(a, at + Layout::kWeights, rows, lane());
        } else if constexpr (kFormat == Weight::kE4M3) {
            uint32_t found[2] = {0, 0};
            Decoder<kFormat>::fragment(a, found, at + Layout::kWeights, rows, lane(), scales);
            nans |= (found[0] & 0x80808080) >> (2 * block) | (found[1] & 0x80808080) >> (2 * block + 1);
        } else {
            Decoder<kFormat>::fragment(a, at + Layout::kWeights, at + Layout::kScales, rows, lane(), stage % 2);
        }
    }

    // While the products of one fragment run, the next fragment is decoded into other registers. The tile has
    // 16 * parts tokens.
    __device__ void multiply_tile(int parts) {
        const int depth_stages = p.depth / kWideDepth;  // even
        uint32_t a[2][16];
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) hold(sums[block]);
        int before = 0;  // the slot of the stage before
#pragma unroll 1
        for (int pair = 0; pair < depth_stages * kBlocks / 2; ++pair) {
#pragma unroll
            for (int turn = 0; turn < 2; ++turn) {
                const int block = kBlocks == 2 ? turn : 0, stage = kBlocks == 2 ? pair : pair * 2 + turn;
                if (block == 0) {
                    barrier_wait(full + slot * 8, phase);
                    advance_scales(stage);
                }
                decode(a[turn], block, stage);
                // one loop for all widths: as many loops would not find enough registers
                multiply_line<false>(parts, sums[block], a[turn], shared_address(stages) + slot * Layout::kStage);
                products_wait<1>();
                if (block == 0 && stage > 0) release(before);  // all its products are done
                if (block == kBlocks - 1) {
                    before = slot;
                    if (++slot == Layout::kStages) slot = 0, phase ^= 1;
                }
            }
        }
        products_wait<0>();
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) hold(sums[block]);
        release(before);
    }

    __device__ void begin_tile(const WideTile& tile) {
        nans = 0;
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
            for (int i = 0; i < 64; ++i) sums[block][i] = 0;
        }
        if constexpr (kFormat == Weight::kE4M3) {
            const RowMap<kBlocks> map(p, tile.row_block);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int m = first_row() + 8 * half, row = min(map.base(m) + map.up_of(m), p.rows - 1);
                scale_at[half] = tile.group * p.scale_group + row / 128 * p.scale_row;
            }
            fetch_scales(0);
        }
    }

    // A NaN code makes its row NaN for every token.
    __device__ void spread_nans() {
        if constexpr (kFormat == Weight::kE4M3) {
            nans |= __shfl_xor_sync(kFullMask, nans, 1);
            nans |= __shfl_xor_sync(kFullMask, nans, 2);
            if (nans == 0) return;
#pragma unroll
            for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
                for (int i = 0; i < 64; ++i) {
                    const uint32_t bits = 0x80808080u >> (2 * block + i / 2 % 2);
                    if (nans & bits) sums[block][i] = __uint_as_float(0x7FC00000);
                }
            }
        }
    }

    // Brings what the end of the tile needs to shared memory while the products run.
    __device__ void fetch_tokens(const WideTile& tile) const {
        sync_warpgroup(1 + group);  // the tile before is stored
        const bool any = thread < tile.count;
        const int packed = tile.begin + thread;
        const uint32_t to = shared_address(tokens.row + thread);
        if (p.scatter) copy4(to, p.scatter + (any ? packed : 0), any);
        if (p.row_weights) copy4(to + sizeof tokens.row, p.row_weights + (any ? packed : 0), any);
        commit_copies();
    }

    template <bool kSwiglu, class Out>
    __device__ void store_rows(const WideTile& tile) const {
        const RowMap<kBlocks> map(p, tile.row_block);
        const int row = map.base(first_row() + lane() / 4);
        if (row >= map.limit) return;
        Out* out = static_cast<Out*>(p.out) + tile.group * p.out_group_stride + row;
        const int stride = static_cast<int>(p.out_row_stride);
#pragma unroll
        for (int i = 0; i < kWideTokens / 4; ++i) {
            const int token = i / 2 * 8 + lane() % 4 * 2 + i % 2, at = i / 2 * 4 + i % 2;
            if (token >= tile.count) continue;
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

    __device__ void store_tile(const WideTile& tile) const {
        wait_copies<0>();
        sync_warpgroup(1 + group);
        if (p.swiglu) {
            p.out_bf16 ? store_rows<true, bf16>(tile) : store_rows<true, float>(tile);
        } else {
            p.out_bf16 ? store_rows<false, bf16>(tile) : store_rows<false, float>(tile);
        }
    }

    __device__ void run() {
        const int tiles = count_tiles(p);
        for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
            const WideTile tile = tile_at(p, index);
            if (tile.count <= 0) continue;
            fetch_tokens(tile);
            begin_tile(tile);
            multiply_tile((tile.count + 15) / 16);
            spread_nans();
            store_tile(tile_at(p, index));  // looked up again: its registers are needed in between
        }
    }
};

#endif

}  // namespace dsv4::gemm
