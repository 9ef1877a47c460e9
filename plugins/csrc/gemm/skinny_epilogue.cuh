// From a work item's partial sums to its outputs.
#pragma once

#include <cooperative_groups.h>

#include "gemm/epilogue.cuh"
#include "gemm/skinny.h"
#include "gemm/skinny_stage.cuh"

namespace dsv4::gemm {

// The weight row behind row g (r = 0) or g + 8 (r = 1) of a 16-row tile. For SwiGLU these are a gate row and
// its up row, so that one lane has both.
__device__ __forceinline__ int weight_row(const Problem& p, int mtile, int g, int r) {
    return p.epilogue == Epilogue::kStore ? mtile * 16 + g + r * 8 : mtile * 8 + g + r * (p.rows / 2);
}

// The sums `a` and `b` of a lane's two rows for one token row of the item.
__device__ __forceinline__ void write_pair(const Problem& p, const Item& item, int mtile, int token, float a, float b) {
    if (token >= item.count) return;
    const int g = threadIdx.x % 32 / 4;
    const int packed = item.begin + token;
    if (p.epilogue == Epilogue::kSwiglu) {
        const int row = mtile * 8 + g;
        if (row < p.rows / 2) store(p, item.group, packed, row, swiglu<bf16>(p, packed, a, b));
    } else {
        const int row = mtile * 16 + g;
        if (row < p.rows) store(p, item.group, packed, row, a);
        if (row + 8 < p.rows) store(p, item.group, packed, row + 8, b);
    }
}

// Waits for the cluster where nothing that was written has to be seen: that others have read.
__device__ __forceinline__ void cluster_sync_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// Adds up what the warps of the block, and the blocks of the cluster, have of the same rows, always in the
// same order, and writes the outputs. Everybody takes part; shared memory is free again afterwards.
template <int NT>
__device__ __forceinline__ void finish(const SkinnyParams& params, const Item& item, int rank, uint8_t* shared,
                                       const float (&sum)[NT][4]) {
    const Shape& shape = params.shape;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, t = lane % 4;
    const int depth_warps = kWarps / shape.row_warps;
    const int first_mtile = item.row_tile * shape.row_warps;
    __syncthreads();  // activations have been read
    if (depth_warps == 1 && shape.split == 1) {
#pragma unroll
        for (int n = 0; n < NT; ++n)
#pragma unroll
            for (int j = 0; j < 2; ++j)
                write_pair(params.problem, item, first_mtile + warp, n * 8 + t * 2 + j, sum[n][j], sum[n][j + 2]);
        return;
    }
    constexpr int kWarpFloats = NT * 4 * 32;
    float* parts = reinterpret_cast<float*>(shared);
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) parts[warp * kWarpFloats + (n * 4 + i) * 32 + lane] = sum[n][i];
    const auto cluster = cooperative_groups::this_cluster();
    if (shape.split > 1) cluster.sync(); else __syncthreads();

    const int token_tiles = (item.count + 7) / 8;
    for (int unit = rank * kWarps + warp; unit < token_tiles * 2 * shape.row_warps; unit += shape.split * kWarps) {
        const int row_warp = unit % shape.row_warps, n = unit / shape.row_warps / 2, j = unit / shape.row_warps % 2;
        float a = 0, b = 0;
        for (int r = 0; r < shape.split; ++r) {
            const float* from = shape.split > 1 ? cluster.map_shared_rank(parts, r) : parts;
            from += row_warp * depth_warps * kWarpFloats + (n * 4 + j) * 32 + lane;
#pragma unroll 4
            for (int k = 0; k < depth_warps; ++k, from += kWarpFloats) a += from[0], b += from[64];
        }
        write_pair(params.problem, item, first_mtile + row_warp, n * 8 + t * 2 + j, a, b);
    }
    if (shape.split > 1) cluster_sync_relaxed(); else __syncthreads();
}

}  // namespace dsv4::gemm
