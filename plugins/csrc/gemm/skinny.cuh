// The skinny kernel: weights stream through registers once, from memory to the tensor cores.
//
// It may start while the kernel before it still runs: the first weights are on their way when that one ends.
#pragma once

#include "common/dependent_launch.cuh"
#include "common/mma.cuh"
#include "gemm/skinny_epilogue.cuh"
#include "gemm/skinny_stage.cuh"

namespace dsv4::gemm {

__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bf16) {
    mma_bf16(d, a[0], a[1], a[2], a[3], b0, b1);
}

__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, __half) {
    mma_f16(d, a[0], a[1], a[2], a[3], b0, b1);
}

// Adds one step: its four chunks times the token rows.
template <bool Extreme, class F, class T, int NT>
__device__ __forceinline__ void add_chunks(const F& fragment, const uint32_t (&slots)[NT], int count,
                                           float (&sum)[NT][4]) {
#pragma unroll(Extreme ? 1 : kChunks)
    for (int c = 0; c < kChunks; ++c) {
        uint32_t a[2][4];
        fragment.template chunk<Extreme>(c, a);
#pragma unroll
        for (int n = 0; n < NT; ++n) {
            if (n > 0 && n * 8 >= count) break;
            const uint4 b = read_16(slots[n] + c * 64);
            mma(sum[n], a[0], b.x, b.y, T());
            mma(sum[n], a[1], b.z, b.w, T());
        }
    }
}

template <class F, class T, int NT>
__device__ __forceinline__ void add_step(const F& fragment, const uint32_t (&slots)[NT], const float* scales, int count,
                                         float (&sum)[NT][4]) {
    if constexpr (!F::kScaled) {
        if (fragment.extreme()) {
            add_chunks<true, F, T>(fragment, slots, count, sum);
        } else {
            add_chunks<false, F, T>(fragment, slots, count, sum);
        }
    } else {
        float part[NT][4] = {};
        add_chunks<false, F, T>(fragment, slots, count, part);
        const float row_scale[2] = {fragment.scale(0), fragment.scale(1)};
#pragma unroll
        for (int n = 0; n < NT; ++n) {
            if (n > 0 && n * 8 >= count) break;
            float2 x_scale = {1, 1};
            if constexpr (std::is_same_v<T, __half>) {
                x_scale = reinterpret_cast<const float2*>(scales)[n * 4 + threadIdx.x % 4];
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) sum[n][i] += part[n][i] * (i % 2 ? x_scale.y : x_scale.x) * row_scale[i / 2];
        }
    }
}

// The lane's two rows of tile `mtile` of the group's weight. Rows that do not exist repeat the last one.
template <Weight W>
__device__ __forceinline__ RowPair row_pair(const Problem& p, int group, int mtile) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int64_t row_bytes = W == Weight::kBf16 ? int64_t(p.depth) * 2 : W == Weight::kE4M3 ? p.depth : p.depth / 2;
    const int scale_cols = W == Weight::kE4M3 ? p.depth / 128 : p.depth / 32;
    const int scale_rows = W == Weight::kE4M3 ? (p.rows + 127) / 128 : p.rows;
    RowPair rows;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = min(weight_row(p, mtile, g, r), p.rows - 1);
        const int64_t scale_row = int64_t(group) * scale_rows + (W == Weight::kE4M3 ? row / 128 : row);
        rows.weight[r] = static_cast<const uint8_t*>(p.weight) + (int64_t(group) * p.rows + row) * row_bytes + t * 16;
        rows.scale[r] = W == Weight::kBf16 ? nullptr : p.scale + scale_row * scale_cols;
    }
    if (W == Weight::kE2M1 && t == 1) rows.scale[0] = rows.scale[1];  // what this lane copies
    return rows;
}

// This warp's share of an item's sum. Steps go round the block's warps of a row tile: round i, warp k of
// `depth_warps` has step first + i * depth_warps + k.
template <Weight W, class T, int NT>
__device__ __forceinline__ void accumulate(const SkinnyParams& params, const Item& item, int rank, uint8_t* shared,
                                           float (&sum)[NT][4]) {
    using F = Fragment<W, T>;
    const Problem& p = params.problem;
    const Shape& shape = params.shape;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int depth_warps = kWarps / shape.row_warps, k = warp % depth_warps;
    const int steps = p.depth / kStepDepth, per_rank = (steps + shape.split - 1) / shape.split;
    const int first = rank * per_rank, last = min(first + per_rank, steps);
    const int rounds = (last - first + depth_warps - 1) / depth_warps;
    // where the warp computes (its scales), and where it copies
    RowPair rows = row_pair<W>(p, item.group, item.row_tile * shape.row_warps + warp / depth_warps);
    rows.advance(int64_t(first + k) * F::kBytes, (first + k) * F::kScales);
    RowPair ahead = rows;
    uint32_t base = shared_address(shared);
    asm volatile("" : "+r"(base));  // kept, not found out again in every step
    const uint32_t ring = base + warp * F::kAhead * F::kStage;
    int step = first + k;

#pragma unroll
    for (int i = 0; i < F::kAhead; ++i) {
        if (step + i * depth_warps < last) F::copy(ahead, ring + i * F::kStage, lane);
        commit_copies();
        ahead.advance(depth_warps * F::kBytes, depth_warps * F::kScales);
    }
    uint8_t scales_ahead[2] = {};
    if (F::kScaled && step < last) rows.load_scales(scales_ahead);
    wait_for_previous();
    allow_next();  // only now: the next kernel may rely on all before this one having ended

    // rounds whose activations lie in shared memory at a time
    const int token_bytes = kTokenSlots * 16, round_tokens = depth_warps * item.count;
    const int phase = shape.stage_bytes / (round_tokens * token_bytes + depth_warps * NT * 32);
    constexpr int kSlots = kWarps * F::kAhead * F::kStage;
    const int scales_at = kSlots + phase * round_tokens * token_bytes;
    uint32_t slots[NT];
    const float* scales = nullptr;
    uint32_t landed = 0;
    for (int round = 0, left = 0; round < rounds; ++round, --left, step += depth_warps) {
        if (left == 0) {
            const int begin = first + round * depth_warps;
            if (round > 0) __syncthreads();
            scales = reinterpret_cast<float*>(shared + scales_at);
            stage<F, T>(p, item, begin, min(phase * depth_warps, last - begin),
                        reinterpret_cast<uint4*>(shared + kSlots), const_cast<float*>(scales), NT * 8);
            __syncthreads();
            left = phase;
            scales += k * NT * 8;
#pragma unroll
            for (int n = 0; n < NT; ++n) {
                const int token = min(n * 8 + lane / 4, item.count - 1);
                slots[n] = base + kSlots + (k * item.count + token) * token_bytes + lane % 4 * 16;
            }
        }
        await_copies<F::kAhead - 1>();
        if (step < last) {
            F fragment;
            fragment.read(ring + landed, lane);
            if constexpr (F::kScaled) {
                fragment.scales[0] = scales_ahead[0], fragment.scales[1] = scales_ahead[1];
                rows.advance(0, depth_warps * F::kScales);
                if (step + depth_warps < last) rows.load_scales(scales_ahead);
            }
            add_step<F, T, NT>(fragment, slots, scales, item.count, sum);
        }
        __syncwarp();  // the stage has been read
        if (step + F::kAhead * depth_warps < last) F::copy(ahead, ring + landed, lane);
        commit_copies();
        ahead.advance(depth_warps * F::kBytes, depth_warps * F::kScales);
        landed = landed == (F::kAhead - 1) * F::kStage ? 0 : landed + F::kStage;
        scales += depth_warps * NT * 8;
#pragma unroll
        for (int n = 0; n < NT; ++n) slots[n] += round_tokens * token_bytes;
    }
}

// The work item `index`, false if there are fewer.
__device__ __forceinline__ bool item_at(const SkinnyParams& params, int index, Item& item) {
    const Problem& p = params.problem;
    const Shape& shape = params.shape;
    const int sub = index % shape.subtiles, rest = index / shape.subtiles, outer = rest / shape.row_tiles;
    item.row_tile = rest % shape.row_tiles;
    Tile tile = {outer, 0, p.tokens};
    if (p.max_tiles > 0) {
        if (outer >= min(*p.num_tiles, p.max_tiles)) return false;
        tile = p.tiles[outer];
    } else if (outer >= p.groups) {
        return false;
    }
    item.group = tile.group;
    item.begin = tile.begin + sub * shape.max_tokens;
    item.count = min(tile.count - sub * shape.max_tokens, shape.max_tokens);
    return true;
}

template <Weight W, class T, int NT>
__global__ void __launch_bounds__(kWarps * 32, NT == 8 ? 1 : kResident)
    skinny_kernel(const __grid_constant__ SkinnyParams params) {
    extern __shared__ __align__(16) uint8_t shared[];
    if (params.problem.max_tiles > 0 && !params.problem.old_tiles) wait_for_previous();
    const int split = params.shape.split, rank = blockIdx.x % split;
    Item item;
    for (int index = blockIdx.x / split; item_at(params, index, item); index += gridDim.x / split) {
        if (item.count <= 0) continue;  // the same for a whole cluster
        float sum[NT][4] = {};
        accumulate<W, T, NT>(params, item, rank, shared, sum);
        finish<NT>(params, item, rank, shared, sum);
    }
    wait_for_previous();  // also without an item: the end of this kernel is the end of all before it
}

// Launches the kernel for the shape's token tiles.
template <Weight W, class T>
void launch_skinny(const Problem& problem, cudaStream_t stream) {
    using F = Fragment<W, T>;
    const SkinnyParams params = {problem, skinny_shape(problem, kWarps * F::kAhead * F::kStage)};
    const Shape& shape = params.shape;
    auto* kernel = shape.token_tiles == 1   ? skinny_kernel<W, T, 1>
                   : shape.token_tiles == 2 ? skinny_kernel<W, T, 2>
                   : shape.token_tiles == 4 ? skinny_kernel<W, T, 4>
                                            : skinny_kernel<W, T, 8>;
    launch_kernel("gemm skinny", kernel, {shape.blocks, kWarps * 32, shape.shared_bytes, shape.split, true}, stream, params);
}

}  // namespace dsv4::gemm
