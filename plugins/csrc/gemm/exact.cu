// Any product in fp32: the kernel for fp32 activations, and for sizes that no other one takes. Plain tiles of
// 32 token rows by 32 weight rows; every thread has two by two of them.
#include "common/reduce.cuh"
#include "gemm/epilogue.cuh"
#include "gemm/problem.h"

namespace dsv4::gemm {
namespace {

constexpr int kThreads = 256, kTile = 32, kHalf = kTile / 2;
constexpr int kDepth = 128;             // also the block of act8
constexpr int kStride = kDepth + 4;     // keeps 16-byte rows, one bank group apart

struct Job {
    int group, begin, count;
};

__device__ bool job_at(const Problem& p, int index, Job& job) {
    const bool tiled = p.max_tiles > 0;
    const int parts = ((tiled ? p.tile_tokens : p.tokens) + kTile - 1) / kTile;
    const int outer = index / parts, part = index % parts;
    if (outer >= (tiled ? min(*p.num_tiles, p.max_tiles) : p.groups)) return false;
    const Tile tile = tiled ? p.tiles[outer] : Tile{outer, 0, p.tokens};
    job = {tile.group, tile.begin + part * kTile, min(tile.count - part * kTile, kTile)};
    return true;
}

// The weight row behind row i of a tile: for SwiGLU a half of gate rows, then their up rows. -1: none.
__device__ int tile_row(const Problem& p, int tile, int i) {
    if (p.epilogue == Epilogue::kStore) return tile * kTile + i < p.rows ? tile * kTile + i : -1;
    const int row = tile * kHalf + i % kHalf;
    return row < p.rows / 2 ? row + i / kHalf * (p.rows / 2) : -1;
}

__device__ float weight_at(const Problem& p, int group, int row, int k) {
    const int64_t at = (int64_t(group) * p.rows + row) * p.depth + k;
    if (p.weight_format == Weight::kBf16) return to_float(static_cast<const bf16*>(p.weight)[at]);
    const uint8_t* bytes = static_cast<const uint8_t*>(p.weight);
    if (p.weight_format == Weight::kE2M1) {
        const uint8_t code = bytes[at / 2] >> k % 2 * 4 & 15;
        return e2m1_decode(code) * e8m0_decode(p.scale[at / 32]);
    }
    const int64_t scale_row = int64_t(group) * ((p.rows + 127) / 128) + row / 128;
    return e4m3_decode(bytes[at]) * e8m0_decode(p.scale[scale_row * ((p.depth + 127) / 128) + k / 128]);
}

__device__ float x_at(const Problem& p, int64_t at) {
    if (p.x_dtype == DSV4_F32) return static_cast<const float*>(p.x)[at];
    if (p.x_dtype == DSV4_BF16) return to_float(static_cast<const bf16*>(p.x)[at]);
    return e4m3_decode(static_cast<const uint8_t*>(p.x)[at]) * e8m0_decode(p.x_scale[at / 128]);
}

// Inputs k .. k + 128 of a job's token rows; one warp a row.
__device__ void load_x(const Problem& p, const Job& job, int k, float (&x)[kTile][kStride]) {
    const int lane = threadIdx.x % 32;
    for (int token = threadIdx.x / 32; token < kTile; token += kThreads / 32) {
        float v[4] = {};
        if (token < job.count) {
            const int packed = job.begin + token;
            const int64_t row = p.gather ? p.gather[packed] : packed;
            const int64_t at = row * p.x_row_stride + job.group * p.x_group_stride + k;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (k + lane * 4 + i < p.depth) v[i] = x_at(p, at + lane * 4 + i);
            }
        }
        if (p.act == Act::kAct8) {
            float amax = 0;
#pragma unroll
            for (int i = 0; i < 4; ++i) amax = max_nan(amax, fabsf(v[i]));
#pragma unroll
            for (int offset = 16; offset > 0; offset /= 2) {
                amax = max_nan(amax, __shfl_xor_sync(kFullMask, amax, offset));
            }
            const uint8_t scale = act8_scale(amax);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                v[i] = e4m3_decode(e4m3_encode(v[i] * e8m0_inverse(scale))) * e8m0_decode(scale);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) x[token][lane * 4 + i] = v[i];
    }
}

__device__ void load_weight(const Problem& p, int group, int tile, int k, float (&w)[kTile][kStride]) {
    for (int i = threadIdx.x; i < kTile * kDepth; i += kThreads) {
        const int row = tile_row(p, tile, i / kDepth), column = i % kDepth;
        w[i / kDepth][column] = row >= 0 && k + column < p.depth ? weight_at(p, group, row, k + column) : 0;
    }
}

__device__ void write(const Problem& p, const Job& job, int tile, int token, float first, float second) {
    if (token >= job.count) return;
    const int packed = job.begin + token, i = threadIdx.x % kHalf;
    const int rows[2] = {tile_row(p, tile, i), tile_row(p, tile, i + kHalf)};
    if (p.epilogue == Epilogue::kSwiglu) {
        if (rows[0] < 0) return;
        store(p, job.group, packed, rows[0],
              p.x_dtype == DSV4_F32 ? swiglu<float>(p, packed, first, second) : swiglu<bf16>(p, packed, first, second));
    } else {
        if (rows[0] >= 0) store(p, job.group, packed, rows[0], first);
        if (rows[1] >= 0) store(p, job.group, packed, rows[1], second);
    }
}

__global__ void __launch_bounds__(kThreads) exact_kernel(const __grid_constant__ Problem p) {
    __shared__ __align__(16) float x[kTile][kStride], w[kTile][kStride];
    const int tile = blockIdx.x, i = threadIdx.x % kHalf, token = threadIdx.x / kHalf;
    Job job;
    for (int index = blockIdx.y; job_at(p, index, job); index += gridDim.y) {
        if (job.count <= 0) continue;
        float sum[2][2] = {};
        for (int k = 0; k < p.depth; k += kDepth) {
            load_x(p, job, k, x);
            load_weight(p, job.group, tile, k, w);
            __syncthreads();
#pragma unroll 2
            for (int d = 0; d < kDepth; d += 4) {
                float4 a[2], b[2];
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    a[h] = *reinterpret_cast<const float4*>(&x[token + h * kHalf][d]);
                    b[h] = *reinterpret_cast<const float4*>(&w[i + h * kHalf][d]);
                }
#pragma unroll
                for (int s = 0; s < 2; ++s)
#pragma unroll
                    for (int t = 0; t < 2; ++t) {
                        sum[s][t] += a[s].x * b[t].x;
                        sum[s][t] += a[s].y * b[t].y;
                        sum[s][t] += a[s].z * b[t].z;
                        sum[s][t] += a[s].w * b[t].w;
                    }
            }
            __syncthreads();
        }
        write(p, job, tile, token, sum[0][0], sum[0][1]);
        write(p, job, tile, token + kHalf, sum[1][0], sum[1][1]);
    }
}

}  // namespace

void exact(const Problem& p, cudaStream_t stream) {
    const int row_tiles = p.epilogue == Epilogue::kSwiglu ? ceil_div(p.rows / 2, kHalf) : ceil_div(p.rows, kTile);
    const int64_t jobs = p.max_tiles > 0 ? int64_t(p.max_tiles) * ceil_div(p.tile_tokens, kTile)
                                         : int64_t(p.groups) * ceil_div(p.tokens, kTile);
    exact_kernel<<<dim3(row_tiles, static_cast<unsigned>(jobs < 65535 ? jobs : 65535)), kThreads, 0, stream>>>(p);
    check_launch("gemm exact");
}

}  // namespace dsv4::gemm
