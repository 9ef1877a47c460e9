// The consumer warpgroups: scores, softmax over all tiles of an item, values, and what is written in the end.
#pragma once

#include "common/rope.cuh"
#include "sparse_attention/prefill.cuh"

namespace dsv4::sparse_attention::prefill_kernel {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ float exp2_fast(float x) {
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}

__device__ __forceinline__ uint32_t pack(float x, float y) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
    return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
    return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}

// Transposes four words in each of four neighbouring threads.
__device__ __forceinline__ uint4 quad_transpose(uint32_t (&a)[4], int quad) {
    auto swap = [quad](uint32_t& low, uint32_t& high, int bit) {
        const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, quad & bit ? low : high, bit);
        (quad & bit ? low : high) = other;
    };
    swap(a[0], a[1], 1);
    swap(a[2], a[3], 1);
    swap(a[0], a[2], 2);
    swap(a[1], a[3], 2);
    return {a[0], a[1], a[2], a[3]};
}

constexpr float kSlack = 8;  // of powers of two

// One of the two warpgroups: Half names its 32 of a tile's keys, and its 256 of the channels.
template <int Half>
struct Consumer {
    const Params& p;
    const Work& work;
    Shared& shared;
    int row, quad;         // rows `row` and row + 8 of the item; columns 8j + 2 quad and the next
    int queries;           // of the two rows; the second one's number from bit 8 on
    float scale;           // of scores, for powers of two

    float out[128];
    float base[2], total[2];  // total: of this thread's columns

    __device__ void release(uint64_t* barrier) const {
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
    }

    __device__ void run() {
        TilePlace tiles;
        for (ItemPlace place;; place.next()) {
            barrier_wait(&shared.q_full, place.parity);
            const Item& item = shared.item[place.slot];
            if (item.alive == 0) break;
            attend(tiles);
            finish(item);
        }
    }

    __device__ __forceinline__ void attend(TilePlace& tiles) {
#pragma unroll
        for (int i = 0; i < 128; ++i) out[i] = 0;
        base[0] = base[1] = -INFINITY;
        total[0] = total[1] = 0;
        bool last;
        do {
            const int stage = tiles.stage();
            barrier_wait(&shared.full[stage], tiles.parity());
            const Tile& tile = shared.tile[stage];
            const uint32_t valid = reinterpret_cast<const uint32_t*>(tile.valid)[Half];
            const uint32_t seen[2] = {valid & tile.seen[queries & 255][Half], valid & tile.seen[queries >> 8][Half]};
            last = tile.last;
            float s[16];
            score(s, stage);
            wgmma_wait<0>();
            if (last) release(&shared.q_empty);
            weigh(s, seen, stage);
            add_values(stage);
            wgmma_wait<0>();
            release(&shared.empty[stage]);
            tiles.next();
        } while (!last);
    }

    __device__ __forceinline__ void score(float (&s)[16], int stage) const {
        const uint64_t q = wgmma_operand(shared_address(shared.q));
        const uint64_t keys = wgmma_operand(shared_address(shared.keys[stage]) + Half * 32 * 128);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < kDim / 16; ++step) {
            const int offset = (step / 4 * kBlockBytes + step % 4 * 32) >> 4;
            if (step == 0) {
                mma_scores<false>(s, q, keys);
            } else {
                mma_scores<true>(s, q + offset, keys + offset);
            }
        }
        wgmma_commit();
    }

    // Scores to probabilities, relative to 2^base. `base` is the highest score of the item so far, or not
    // more than kSlack below it: following every small rise would cost a round between the consumers and
    // changes nothing, as probabilities are floating point until they are divided by their sum.
    __device__ __forceinline__ void weigh(float (&s)[16], const uint32_t (&seen)[2], int stage) {
        float high[2] = {-INFINITY, -INFINITY};
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const int side = i / 2 % 2, bit = i / 4 * 8 + i % 2;
            if (!(seen[side] >> (2 * quad) & 1u << bit)) s[i] = -INFINITY;
            high[side] = fmaxf(high[side], s[i]);
        }
        const bool above = high[0] * scale > base[0] + kSlack || high[1] * scale > base[1] + kSlack;
        float sum[2];
        exponentiate(s, sum, stage);
        if (sync_any<kProbs, kConsumers>(above)) {  // the same answer in both consumers
            raise(high);
            exponentiate(s, sum, stage);
            sync_threads<kProbs, kConsumers>();
        }
        total[0] += sum[0];
        total[1] += sum[1];
    }

    __device__ __forceinline__ float reference(int side) const { return base[side] == -INFINITY ? 0 : base[side]; }

    __device__ __forceinline__ void exponentiate(const float (&s)[16], float (&sum)[2], int stage) const {
        // chunk Half * 4 + j of the row is at `probs` with j in the bits of chunks; row + 8 has the same swizzle
        const uint32_t chunk = (Half * 4) ^ (row & 7);
        const uint32_t probs = shared_address(shared.probs[stage]) + (row * 128 | chunk << 4 | quad << 2);
        const float minus[2] = {-reference(0), -reference(1)};
        sum[0] = sum[1] = 0;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
#pragma unroll
            for (int side = 0; side < 2; ++side) {
                const float x = exp2_fast(fmaf(s[4 * j + 2 * side], scale, minus[side]));
                const float y = exp2_fast(fmaf(s[4 * j + 2 * side + 1], scale, minus[side]));
                sum[side] += x + y;
                store_word((probs ^ j << 4) + side * 8 * 128, pack(x, y));
            }
        }
        fence_async_proxy();
    }

    // Moves `base` up to the highest score of both consumers' keys; `out` and `total` follow it.
    __device__ __forceinline__ void raise(float (&high)[2]) {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
            high[side] = quad_max(high[side]);
            if (quad == 0) shared.peak[Half][row + 8 * side] = high[side];
        }
        sync_threads<kPeaks, kConsumers>();
        float shrink[2];
#pragma unroll
        for (int side = 0; side < 2; ++side) {
            const float peak = fmaxf(high[side], shared.peak[1 - Half][row + 8 * side]);
            const float before = base[side];
            base[side] = fmaxf(before, peak * scale);
            shrink[side] = exp2_fast(before - reference(side));
            total[side] *= shrink[side];
        }
#pragma unroll
        for (int i = 0; i < 128; ++i) out[i] *= shrink[i / 2 % 2];
    }

    // Starts the products.
    __device__ __forceinline__ void add_values(int stage) {
        const uint64_t probs = wgmma_operand(shared_address(shared.probs[stage]));
        const uint64_t values = wgmma_operand(shared_address(shared.keys[stage]) + Half * (kTileBytes / 2), kBlockBytes);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < kKeys / 16; ++step) {
            const uint64_t a = probs + (step * 32 >> 4), b = values + (step * 16 * 128 >> 4);
            mma_values<0>(out, a, b);
            mma_values<64>(out, a, b + (2 * kBlockBytes >> 4));
        }
        wgmma_commit();
    }

    __device__ __forceinline__ void finish(const Item& item) {
        float inverse[2];
#pragma unroll
        for (int side = 0; side < 2; ++side) {
            total[side] = quad_sum(total[side]);
            if (quad == 0) shared.total[Half][row + 8 * side] = total[side];
        }
        sync_threads<kPeaks, kConsumers>();
#pragma unroll
        for (int side = 0; side < 2; ++side) {
            const int head = item.head + (row + 8 * side) % work.query_rows;
            const float sink = head < p.heads ? p.sinks[head] : 0;
            const float sum = total[side] + shared.total[1 - Half][row + 8 * side] +
                              exp2_fast(fmaf(sink, 1.4426950408889634f, -reference(side)));
            inverse[side] = sum == 0 ? 0 : 1 / sum;
        }
#pragma unroll
        for (int side = 0; side < 2; ++side) store(item, side, inverse[side]);
    }

    // Four times 32 channels of a row by four threads, 16 bytes by each.
    __device__ __forceinline__ void store(const Item& item, int side, float inverse) {
        const int slot = row + 8 * side, own = slot / work.query_rows, head = item.head + slot % work.query_rows;
        const bool real = own < work.queries && item.alive >> own & 1 && head < p.heads;
        const int64_t to = (int64_t(item.token + own) * p.heads + head) * kDim + Half * 256;
        bf16* target = static_cast<bf16*>(p.out) + to;
#pragma unroll
        for (int group = 0; group < 8; ++group) {
            uint32_t words[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int j = 4 * group + i;
                float2 pair = {out[4 * j + 2 * side] * inverse, out[4 * j + 2 * side + 1] * inverse};
                if (Half == 1 && group >= 6 && p.inverse_rope && real) {
                    const float2 turn = item.turn[own * kRopePairs + 4 * (j - 24) + quad];
                    pair = rotate({rounded<bf16>(pair.x), rounded<bf16>(pair.y)}, turn);
                }
                words[i] = pack(pair.x, pair.y);
            }
            const uint4 chunk = quad_transpose(words, quad);
            if (real) *reinterpret_cast<uint4*>(target + 32 * group + 8 * quad) = chunk;
        }
    }
};

#endif

}  // namespace dsv4::sparse_attention::prefill_kernel
