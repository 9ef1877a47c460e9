// Attention of one token: a block takes some of its heads and one share of its keys, tile by tile.
#pragma once

#include "common/dependent_launch.cuh"
#include "common/rope.cuh"
#include "sparse_attention/decode_gather.cuh"
#include "sparse_attention/decode_tile.cuh"

namespace dsv4::sparse_attention {

// A block's place in the grid.
struct Block {
    int row, head, split;  // row counts from the first of the launch

    template <int Heads>
    __device__ static Block of(const Plan& plan) {
        const int group = blockIdx.x / plan.splits;
        return {group / plan.head_blocks, group % plan.head_blocks * Heads, static_cast<int>(blockIdx.x % plan.splits)};
    }
};

// The query's heads to shared memory, zeros for heads beyond the last.
template <int Heads>
__device__ __forceinline__ void copy_query(const Params& p, int token, int head, uint8_t* to) {
    const uint8_t* from = static_cast<const uint8_t*>(p.q) + (int64_t(token) * p.heads + head) * kRowBytes;
#pragma unroll
    for (int i = 0; i < Heads * 64 / kDecodeThreads; ++i) {
        const int index = i * kDecodeThreads + threadIdx.x;
        const int row = index / 64, chunk = index % 64;
        uint8_t* at = to + swizzled(row, chunk);
        if (head + row < p.heads) {
            copy_async<16>(shared_address(at), from + int64_t(index) * 16);
        } else {
            *reinterpret_cast<uint4*>(at) = uint4{};
        }
    }
}

// Rounds to bf16, rotates back, and writes: values are multiplied by the head's factor first.
template <int Heads>
__device__ __forceinline__ void write_out(const Params& p, int token, int head, const Values<Heads>& values,
                                          const float* factors, const float2* angles) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const bool rotated = p.inverse_rope && warp == kDecodeWarps - 1;
    static_assert(kNope == kDecodeDim - kWarpChannels, "the last warp has the rotated channels");
    bf16* out = static_cast<bf16*>(p.out) + (int64_t(token) * p.heads + head) * kDecodeDim + warp * kWarpChannels;
#pragma unroll
    for (int m = 0; m < Heads / 16; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = m * 16 + half * 8 + lane / 4;
            if (head + row >= p.heads) continue;
            const float factor = factors[row];
#pragma unroll
            for (int n = 0; n < kWarpChannels / 8; ++n) {
                const int c = n * 8 + lane % 4 * 2;
                float2 pair{values[m][n][half * 2] * factor, values[m][n][half * 2 + 1] * factor};
                if (rotated) pair = rotate({rounded<bf16>(pair.x), rounded<bf16>(pair.y)}, angles[c / 2]);
                *reinterpret_cast<__nv_bfloat162*>(out + row * kDecodeDim + c) = __floats2bfloat162_rn(pair.x, pair.y);
            }
        }
    }
}

template <int Heads>
__device__ __forceinline__ void write_partial(const Params& p, const Partials& partials, const Block& block,
                                              const Values<Heads>& values) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < Heads / 16; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int head = block.head + m * 16 + half * 8 + lane / 4;
            if (head >= p.heads) continue;
            float* to = partials.values + partials.index(block.row, head, block.split) * kDecodeDim +
                        warp * kWarpChannels + lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < kWarpChannels / 8; ++n) {
                *reinterpret_cast<float2*>(to + n * 8) = {values[m][n][half * 2], values[m][n][half * 2 + 1]};
            }
        }
    }
}

// Peak and total of every head: as partial results, or with the sink as the factor of its values.
template <int Heads>
__device__ __forceinline__ void finish_heads(const Params& p, const Partials& partials, const Block& block, bool alone,
                                             const Softmax& softmax, float* factors) {
    constexpr int kThreadsPerHead = kDecodeThreads / Heads;
    float total = softmax.total;
#pragma unroll
    for (int offset = kThreadsPerHead / 2; offset > 0; offset /= 2) {
        total += __shfl_xor_sync(0xFFFFFFFFu, total, offset);
    }
    const int row = threadIdx.x / kThreadsPerHead, head = block.head + row;
    if (threadIdx.x % kThreadsPerHead != 0 || head >= p.heads) return;
    if (!alone) {
        partials.stats[partials.index(block.row, head, block.split)] = {softmax.peak, total};
        return;
    }
    total += exp2f(p.sinks[head] * kLog2e - peak_or_zero(softmax.peak));
    factors[row] = total == 0 ? 0.0f : 1 / total;
}

template <int Heads>
__device__ __forceinline__ void write_zeros(const Params& p, int token, int head) {
    const int count = min(Heads, p.heads - head) * 64;
    uint4* out = reinterpret_cast<uint4*>(static_cast<bf16*>(p.out) + (int64_t(token) * p.heads + head) * kDecodeDim);
    for (int i = threadIdx.x; i < count; i += kDecodeThreads) out[i] = uint4{};
}

template <Format F, int Heads, int Tile>
__global__ void __launch_bounds__(kDecodeThreads, 1)
    decode_kernel(const __grid_constant__ Params p, Rows rows, Plan plan, Partials partials) {
    using L = Layout<F, Heads, Tile>;
    extern __shared__ __align__(128) uint8_t memory[];
    allow_next();
    __shared__ Block block;  // these rather than in registers, which the values need
    __shared__ Query query;
    __shared__ Share share;
    if (threadIdx.x == 0) {
        block = Block::of<Heads>(plan);
        query = Query::of(p, rows.first + block.row);
        share = Share::of(query.slots, Tile, plan.splits, block.split);
    }
    __syncthreads();
    if (share.begin >= share.end) {
        if (share.used == 0 && block.split == 0) write_zeros<Heads>(p, query.token, block.head);
        return;
    }
    copy_query<Heads>(p, query.token, block.head, memory + L::kQuery);
    Gather<F, Heads, Tile> gather(p, query, memory);
    gather.start(share.begin);
    float2* angles = reinterpret_cast<float2*>(memory + L::kAngles);
    if (threadIdx.x < kDecodeRopePairs && p.inverse_rope) {
        const float2 angle = rope_angle(query.position, p.inv_freq[threadIdx.x]);
        angles[threadIdx.x] = {angle.x, -angle.y};
    }

    Softmax softmax;
    Values<Heads> values = {};
    const float scale = p.sm_scale * kLog2e;
    for (int tile = share.begin; tile < share.end; ++tile) {
        wait_copies();
        __syncwarp();
        const bool any = gather.decode() != 0;
        __syncwarp();  // all lanes have read what the next copies overwrite
        if (tile + 1 < share.end) gather.advance(tile + 1);
        if (!__syncthreads_or(any)) continue;
        score_tile<L, Heads, Tile>(memory);
        __syncthreads();
        softmax_tile<L, Heads, Tile>(memory, scale, softmax);
        __syncthreads();
        add_values<L, Heads, Tile>(memory, values);
        __syncthreads();
    }

    const bool alone = share.used == 1;
    float* factors = reinterpret_cast<float*>(memory + L::kHeadNumbers);
    finish_heads<Heads>(p, partials, block, alone, softmax, factors);
    if (alone) {
        __syncthreads();
        write_out<Heads>(p, query.token, block.head, values, factors, angles);
    } else {
        write_partial<Heads>(p, partials, block, values);
    }
}

template <Format F, int Heads, int Tile>
void launch_decode(const Params& p, Rows rows, const Plan& plan, const Partials& partials, cudaStream_t stream) {
    constexpr int kBytes = Layout<F, Heads, Tile>::kBytes;
    static_assert(kBytes <= 227 * 1024);
    const int64_t blocks = int64_t(rows.count) * plan.head_blocks * plan.splits;
    DSV4_REQUIRE(blocks <= INT32_MAX, "attention of %d tokens is too large", rows.count);
    launch_kernel("sparse_attention decode", decode_kernel<F, Heads, Tile>, {blocks, kDecodeThreads, kBytes}, stream, p,
                  rows, plan, partials);
}

}  // namespace dsv4::sparse_attention
