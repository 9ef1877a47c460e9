// The two warpgroups of `wide` that multiply in codes: e4m3 times e4m3.
//
// e2m1 weights become e4m3 against one scale of 128 inputs of a row, the largest of their four: exact while the
// four are within 2^14 of each other, else the smaller ones are rounded to 2^-10 where the largest code is 384.
#pragma once

#include "gemm/wide_store.cuh"

namespace dsv4::gemm {

// How far below the largest scale a group's may be before its codes all are zero, and one more.
constexpr int kScaleSteps = 20;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// The eight magnitudes of e2m1 times 2^(6 - step), as e4m3.
__device__ __forceinline__ void fill_code_table(uint2* table, int step) {
    if (step >= kScaleSteps) return;
    uint32_t words[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const uint32_t code = e4m3_encode(e2m1_decode(i) * __uint_as_float(uint32_t(127 + 6 - step) << 23));
        words[i / 4] |= code << (i % 4 * 8);
    }
    table[step] = make_uint2(words[0], words[1]);
}

// Four codes from the low four nibbles of `nibbles`, and the signs from the top bits of `signs`.
__device__ __forceinline__ uint32_t codes4(uint2 table, uint32_t nibbles, uint32_t signs) {
    return __byte_perm(table.x, table.y, nibbles & 0x7777) | (signs & 0x80808080);
}

// A fragment of 64 rows x 128 inputs: of e2m1, thread q takes inputs 32q .. 32q + 31, which have one scale.
// `scales` are then what the sums of rows g and g + 8 are multiplied by.
__device__ __forceinline__ void codes_fragment(uint32_t (&a)[16], float (&scales)[2], const char* weights,
                                               const char* scale_bytes, const uint2* table, int rows, int lane) {
    const int q = lane % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = rows + lane / 4 + 8 * half;
        const uint4 raw = *reinterpret_cast<const uint4*>(weights + row * 64 + q * 16);
        const uint32_t bytes = *reinterpret_cast<const uint32_t*>(scale_bytes + row * 4);
        const uint32_t most = max(max(bytes & 255, bytes >> 8 & 255), max(bytes >> 16 & 255, bytes >> 24));
        const uint32_t mine = bytes >> (8 * q) & 255;
        const uint2 codes = table[min(most - mine, kScaleSteps - 1)];
        scales[half] = e8m0_decode(most) * 0x1p-6f;
        const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            const uint32_t odd = words[step], even = odd << 4;  // nibbles whose sign is at the top of a byte
            a[step * 4 + half] = codes4(codes, odd, __byte_perm(even, odd, 0x5140));
            a[step * 4 + half + 2] = codes4(codes, odd >> 16, __byte_perm(even, odd, 0x7362));
        }
    }
}

template <Weight kFormat>
struct CodesConsumer : Sums<2, kWideCodeTokens> {
    using Base = Sums<2, kWideCodeTokens>;
    using Layout = Shared<kFormat, 2, true>;
    // tokens that a tile is made wider by; finer ones leave the compiler too few registers
    static constexpr int kGrain = kFormat == Weight::kE2M1 ? 48 : 96;

    const char* stages;        // shared memory
    int slot = 0;
    uint32_t phase = 0;
    uint8_t next_scales[2];    // kE4M3: scale bytes of rows g and g + 8 for the next 128 inputs
    uint32_t scale_at[2];      // offsets of theirs

    __device__ CodesConsumer(const Base& base, const char* stages)
        : Base(base.p, base.tokens, base.thread, base.group), stages(stages) {}

    __device__ uint32_t full(int slot) const { return shared_address(stages) + Layout::kBarriers + 8 * slot; }
    __device__ uint32_t empty(int slot) const { return full(slot) + 8 * Layout::kStages; }

    __device__ void fetch_scales(int stage) {
#pragma unroll
        for (int half = 0; half < 2; ++half) next_scales[half] = __ldg(p.scale + (scale_at[half] + stage));
    }

    // Both blocks of a warp's rows lie in the same 128 rows.
    __device__ void advance_scales(float (&scales)[2][2], int stage) {
#pragma unroll
        for (int half = 0; half < 2; ++half) scales[0][half] = e8m0_decode(next_scales[half]);
        if (stage + 1 < p.depth / kLine) fetch_scales(stage + 1);
    }

    __device__ void begin_tile(const WideTile& tile) {
        clear();
        if constexpr (kFormat == Weight::kE4M3) {
            const RowMap<2> map(p, tile.row_block);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int m = first_row() + 8 * half, row = min(map.base(m) + map.up_of(m), p.rows - 1);
                scale_at[half] = tile.group * p.scale_group + row / 128 * p.scale_row;
            }
            fetch_scales(0);
        }
    }

    __device__ void decode(uint32_t (&a)[16], float (&scales)[2], int block) const {
        const char* at = stages + slot * Layout::kStage;
        const int rows = first_row() + 16 * block;
        if constexpr (kFormat == Weight::kE4M3) {
            Decoder<Weight::kBf16>::fragment(a, at + Layout::kWeights, rows, lane());
        } else {
            const auto* table = reinterpret_cast<const uint2*>(stages + Layout::kTableAt);
            codes_fragment(a, scales, at + Layout::kWeights, at + Layout::kScales, table, rows, lane());
        }
    }

    // Adds sums of 128 inputs, times the scales of weight rows and of tokens.
    __device__ void add(float (&total)[kWideCodeTokens / 2], const float (&part)[kWideCodeTokens / 2],
                        const float (&scales)[2], int used, int parts) const {
        const char* x_scales = stages + used * Layout::kStage + Layout::kInputScales + lane() % 4 * 8;
#pragma unroll
        for (int i = 0; i < kWideCodeTokens / 16; ++i) {
            if (i * 16 >= parts * kGrain) break;
#pragma unroll
            for (int j = 4 * i; j < 4 * i + 4; j += 2) {
                // eight tokens
                const float2 x_scale = *reinterpret_cast<const float2*>(x_scales + j * 16);
                total[2 * j] += part[2 * j] * x_scale.x * scales[0];
                total[2 * j + 1] += part[2 * j + 1] * x_scale.y * scales[0];
                total[2 * j + 2] += part[2 * j + 2] * x_scale.x * scales[1];
                total[2 * j + 3] += part[2 * j + 3] * x_scale.y * scales[1];
            }
        }
    }

    __device__ void wait_full() const {
        barrier_wait(full(slot), phase);
        fence_async_proxy();
    }

    __device__ void next_slot() {
        if (++slot == Layout::kStages) slot = 0, phase ^= 1;
    }

    // While the products of one fragment run the next one is decoded, where that takes long enough to be worth
    // the registers.
    __device__ void multiply_tile(int parts) {
        constexpr bool kAhead = kFormat == Weight::kE2M1;
        const int depth_stages = p.depth / kLine;
        uint32_t a[kAhead ? 2 : 1][16];
        float scales[2][2], part[kWideCodeTokens / 2];
        if constexpr (kAhead) {
            wait_full();
            decode(a[0], scales[0], 0);
        }
#pragma unroll 1
        for (int stage = 0; stage < depth_stages; ++stage) {
            const int used = slot;
            if constexpr (!kAhead) {
                wait_full();
                advance_scales(scales, stage);
            }
#pragma unroll
            for (int block = 0; block < 2; ++block) {
                if constexpr (!kAhead) decode(a[0], scales[0], block);
                multiply_parts<kGrain, true>(parts, part, a[kAhead ? block : 0],
                                             shared_address(stages) + used * Layout::kStage);
                if (block == 1) next_slot();
                if constexpr (kAhead) {
                    if (block == 0) {
                        decode(a[1], scales[1], 1);
                    } else if (stage + 1 < depth_stages) {
                        wait_full();
                        decode(a[0], scales[0], 0);
                    }
                }
                products_wait<0>();
                hold(part);
                add(sums[block], part, scales[kAhead ? block : 0], used, parts);
            }
            __syncwarp();
            if (lane() == 0) barrier_arrive(empty(used));
        }
    }

    __device__ void run() {
        const int tiles = count_tiles(p);
        for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
            const WideTile tile = tile_at(p, index);
            if (tile.count <= 0) continue;
            fetch_tokens(tile);
            begin_tile(tile);
            multiply_tile((tile.count + kGrain - 1) / kGrain);
            store_tile(tile_at(p, index));  // looked up again: its registers are needed in between
        }
    }
};

#endif

}  // namespace dsv4::gemm
