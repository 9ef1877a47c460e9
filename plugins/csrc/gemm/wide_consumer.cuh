// The two warpgroups of `wide` that multiply.
#pragma once

#include "common/reduce.cuh"
#include "gemm/wide_store.cuh"

namespace dsv4::gemm {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <Weight kFormat, int kBlocks>
struct Consumer : Sums<kBlocks> {
    using Base = Sums<kBlocks>;
    using Base::p, Base::sums, Base::lane, Base::first_row;
    using Layout = Shared<kFormat, kBlocks>;
    static constexpr int kGrain = 16;  // tokens that a tile is made wider by

    const char* stages;   // shared memory
    int slot = 0;
    uint32_t phase = 0;
    uint32_t nans;        // kE4M3: bits 8 * i + 7 - (2 * block + half) of rows that had a NaN code
    uint32_t scales[2];   // kE4M3: of rows g and g + 8, for the present 128 inputs
    uint8_t next_scales[2];
    uint32_t scale_at[2];  // offsets of theirs

    __device__ Consumer(const Base& base, const char* stages)
        : Base(base.p, base.tokens, base.thread, base.group), stages(stages) {}

    __device__ uint32_t full(int slot) const { return shared_address(stages) + Layout::kBarriers + 8 * slot; }
    __device__ uint32_t empty(int slot) const { return full(slot) + 8 * Layout::kStages; }

    __device__ void release(int used) const {
        __syncwarp();
        if (lane() == 0) barrier_arrive(empty(used));
    }

    __device__ void fetch_scales(int depth_block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) next_scales[half] = __ldg(p.scale + (scale_at[half] + depth_block));
    }

    // At each stage; every second one begins another 128 inputs, whose scales were fetched two stages ago.
    __device__ void advance_scales(int stage, int end) {
        if constexpr (kFormat == Weight::kE4M3) {
            if (stage % 2) return;
#pragma unroll
            for (int half = 0; half < 2; ++half) scales[half] = scale2(next_scales[half]);
            if (stage + 2 < end) fetch_scales(stage / 2 + 1);
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
    // kGrain * parts tokens.
    __device__ void multiply_tile(const StageRange& range, int parts) {
        uint32_t a[2][16];
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) hold(sums[block]);
        int before = 0;  // the slot of the stage before
#pragma unroll 1
        for (int pair = range.first * kBlocks / 2; pair < range.end * kBlocks / 2; ++pair) {
#pragma unroll
            for (int turn = 0; turn < 2; ++turn) {
                const int block = kBlocks == 2 ? turn : 0, stage = kBlocks == 2 ? pair : pair * 2 + turn;
                if (block == 0) {
                    barrier_wait(full(slot), phase);
                    advance_scales(stage, range.end);
                }
                decode(a[turn], block, stage);
                // one loop for all widths: as many loops would not find enough registers
                multiply_parts<kGrain>(parts, sums[block], a[turn], shared_address(stages) + slot * Layout::kStage);
                wgmma_wait<1>();
                if (block == 0 && stage > range.first) release(before);  // all its products are done
                if (block == kBlocks - 1) {
                    before = slot;
                    if (++slot == Layout::kStages) slot = 0, phase ^= 1;
                }
            }
        }
        wgmma_wait<0>();
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) hold(sums[block]);
        release(before);
    }

    __device__ void begin_tile(const WideTile& tile, const StageRange& range) {
        nans = 0;
        this->clear();
        if constexpr (kFormat == Weight::kE4M3) {
            const RowMap<kBlocks> map(p, tile.row_block);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int m = first_row() + 8 * half, row = min(map.base(m) + map.up_of(m), p.rows - 1);
                scale_at[half] = tile.group * p.scale_group + row / 128 * p.scale_row;
            }
            fetch_scales(range.first / 2);
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

    // Sums of the blocks that share this tile, in their order, for the eights of tokens that are this block's.
    __device__ void exchange(int rank, int parts) {
        float* shown = reinterpret_cast<float*>(const_cast<char*>(stages) + Layout::kExchangeAt) +
                       this->group * 128 + this->thread;
#pragma unroll
        for (int i = 0; i < kWideSplitTokens / 2; ++i) {
            if (i / 8 < parts) shown[i * 256] = sums[0][i];
        }
        cluster_sync();
#pragma unroll
        for (int i = 0; i < kWideSplitTokens / 2; ++i) {
            if (i / 8 >= parts || (i / 4 & (p.splits - 1)) != rank) continue;
            const uint32_t place = shared_address(shown + i * 256);
            float sum = 0;
            for (int block = 0; block < p.splits; ++block) sum += load_from_block(place, block);
            sums[0][i] = sum;
        }
        cluster_sync();
    }

    __device__ void run() {
        const int tiles = count_tiles(p), splits = Layout::kSplits ? p.splits : 1;
        const StageRange range = stage_range<Layout::kSplits>(p);
        for (int index = blockIdx.x / splits; index < tiles; index += gridDim.x / splits) {
            const WideTile tile = tile_at(p, index);
            if (tile.count <= 0) continue;
            const int parts = (tile.count + kGrain - 1) / kGrain;
            this->fetch_tokens(tile);
            begin_tile(tile, range);
            multiply_tile(range, parts);
            spread_nans();
            int own = 0;
            if constexpr (Layout::kSplits) {
                if (splits > 1) exchange(own = cluster_rank(), parts);
            }
            this->store_tile(tile_at(p, index), own, splits);  // looked up again: its registers are needed in between
        }
    }
};

#endif

}  // namespace dsv4::gemm
