// The warpgroup of `wide` that brings inputs and raw weights to shared memory.
#pragma once

#include "gemm/wide_tiles.cuh"

namespace dsv4::gemm {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <Weight kFormat, int kBlocks>
struct Producer {
    using Layout = Shared<kFormat, kBlocks>;
    static constexpr int kChunks = stage_bytes(kFormat) / 16;  // of a weight row in a stage
    static constexpr int kPassRows = 128 / kChunks;                   // weight rows that all threads copy at once
    static constexpr int kPasses = Layout::kRows / kPassRows;
    static constexpr int kTokenPasses = kWideTokens / 16;

    static constexpr int kLag = Layout::kStages > 4 ? 3 : 2;  // stages whose copies are under way
    static_assert(kLag < Layout::kStages - 1);

    const WideParams& p;
    uint32_t stages, full, empty;  // shared memory
    int thread;
    int slot = 0, count = 0;
    uint32_t phase = 1;

    // What this thread copies in every stage of a tile.
    struct Sources {
        const uint8_t* x;
        uint32_t x_row[kTokenPasses];  // 16-byte units; all ones: none
        int token_passes;
        const char* weight;
        int left;                      // weight rows left from the first that this thread copies
        const char* scales;
        int scales_left;               // weight rows left from the one whose scales this thread copies
    };

    // Rows from pass 0 to pass `i`, in units of `16 * kBlocks` tile rows and in rows within one.
    static __device__ int whole(int i) { return kPassRows < 16 * kBlocks ? i / 2 : i * (kPassRows / (16 * kBlocks)); }
    static __device__ int part(int i) { return kPassRows < 16 * kBlocks ? i % 2 : 0; }

    __device__ Sources sources(const WideTile& tile) const {
        const RowMap<kBlocks> map(p, tile.row_block);
        Sources s;
        s.x = p.x + tile.group * p.x_group_stride + thread % 8 * 16;
        s.token_passes = (tile.count + 15) / 16;
#pragma unroll
        for (int i = 0; i < kTokenPasses; ++i) {
            const int token = thread / 8 + 16 * i;
            if (token < tile.count) {
                const int row = p.gather ? p.gather[tile.begin + token] : tile.begin + token;
                s.x_row[i] = row * (p.x_row_stride / 16);
            } else {
                s.x_row[i] = ~0u;
            }
        }
        const int m = thread / kChunks;
        s.left = map.limit - map.base(m);
        s.weight = reinterpret_cast<const char*>(p.weight) + tile.group * p.weight_group +
                   int64_t(s.left > 0 ? map.base(m) + map.up_of(m) : 0) * p.weight_row + thread % kChunks * 16;
        if constexpr (kFormat == Weight::kE2M1) {
            s.scales_left = map.limit - map.base(thread);
            s.scales = reinterpret_cast<const char*>(p.scale) + tile.group * p.scale_group +
                       int64_t(s.scales_left > 0 ? map.base(thread) + map.up_of(thread) : 0) * p.scale_row;
        }
        return s;
    }

    __device__ void copy_stage(const Sources& s, int stage, int unit, int part_rows) const {
        const uint32_t to = stages + slot * Layout::kStage;
        const int row = thread / 8;
        const uint32_t x_to = to + row * 128 + ((thread % 8 ^ row % 8) << 4);
#pragma unroll
        for (int i = 0; i < kTokenPasses; ++i) {
            if (i >= s.token_passes) break;
            const bool any = s.x_row[i] != ~0u;
            copy_or_clear_16(x_to + i * 2048, s.x + (any ? (uint64_t(s.x_row[i]) << 4) : 0) + stage * 128, any);
        }
        asm volatile("" : "+r"(unit));  // rows are worked out here, not kept in registers that are not there
        const int m = thread / kChunks, chunk = thread % kChunks;
        const uint32_t weight_to =
            to + Layout::kWeights + m * kChunks * 16 + ((kChunks == 8 ? chunk ^ m % 8 : chunk) << 4);
        const char* weight = s.weight + stage * (kChunks * 16);
#pragma unroll
        for (int i = 0; i < kPasses; ++i) {
            const int rows = whole(i) * unit + part(i) * part_rows;
            const bool any = rows < s.left;
            copy_or_clear_16(weight_to + i * 2048, weight + int64_t(any ? rows : 0) * p.weight_row, any);
        }
        if constexpr (kFormat == Weight::kE2M1) {
#pragma unroll
            for (int i = 0; i < kBlocks; ++i) {
                const int rows = i * (8 / kBlocks) * unit;
                const bool any = rows < s.scales_left;
                copy_or_clear_4(to + Layout::kScales + (thread + 128 * i) * 4,
                      s.scales + int64_t(any ? rows : 0) * p.scale_row + stage / 2 * 4, any);
            }
        }
    }

    // The copies of slot `landed` have landed, seen from this thread.
    __device__ void announce(int landed) const {
        fence_async_proxy();
        __syncwarp();
        if (thread % 32 == 0) barrier_arrive(full + landed * 8);
    }

    // Announces what is still to be announced, at most kLag stages, oldest first.
    __device__ void finish() {
        wait_copies<0>();
        for (int i = min(count, kLag); i > 0; --i) announce((slot + Layout::kStages - i) % Layout::kStages);
        count = 0;
    }

    __device__ void run() {
        const int tiles = count_tiles(p);
        const StageRange range = stage_range<Layout::kSplits>(p);
        const int splits = Layout::kSplits ? p.splits : 1;
        const int unit = (p.swiglu ? 8 : 16) * kBlocks, part_rows = p.swiglu ? 1 : 2;
        for (int index = blockIdx.x / splits; index < tiles; index += gridDim.x / splits) {
            const WideTile tile = tile_at(p, index);
            if (tile.count <= 0) continue;
            const Sources s = sources(tile);
            for (int stage = range.first; stage < range.end; ++stage) {
                barrier_wait(empty + slot * 8, phase);
                copy_stage(s, stage, unit, part_rows);
                commit_copies();
                if (count++ >= kLag) {
                    wait_copies<kLag>();
                    announce((slot + Layout::kStages - kLag) % Layout::kStages);
                }
                if (++slot == Layout::kStages) slot = 0, phase ^= 1;
            }
            if (splits > 1) {
                finish();
                cluster_sync(), cluster_sync();  // those of Consumer::exchange
            }
        }
        finish();
    }
};

#endif

}  // namespace dsv4::gemm
