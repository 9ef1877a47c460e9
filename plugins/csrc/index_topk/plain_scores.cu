// Scores without tensor cores: fp32 keys or scores, and head counts that the other kernel is not made for.
//
// A thread has one key's channels in registers and goes through the heads of the block's token.
#include "index_topk/index_topk.h"
#include "index_topk/order.cuh"

namespace dsv4::index_topk {
namespace {

constexpr int kThreads = 128;
constexpr int kScaleBlock = 32;

template <class T>
__device__ __forceinline__ T read(const uint8_t* from) { return *reinterpret_cast<const T*>(from); }

// Channel c of a row.
__device__ __forceinline__ float channel(Format format, const uint8_t* row, const uint8_t* scales, int c) {
    switch (format) {
        case Format::kFp4: return e2m1_decode(row[c / 2] >> (4 * (c % 2)) & 15) * e8m0_decode(scales[c / kScaleBlock]);
        case Format::kFp8: return e4m3_decode(row[c]);
        case Format::kBf16: return to_float(read<bf16>(row + 2 * c));
        default: return read<float>(row + 4 * c);
    }
}

template <class Key>
__global__ void __launch_bounds__(kThreads) kernel(Params p) {
    extern __shared__ float4 shared[];
    float* query = reinterpret_cast<float*>(shared);    // [num_heads, 128]
    float* weights = query + p.num_heads * kHeadDim;
    const int token = p.row_end - 1 - blockIdx.x;
    const int visible = p.visible(token);
    if (!p.chooses(visible)) return;

    for (int i = threadIdx.x; i < p.num_heads * kHeadDim; i += kThreads) {
        const int64_t head = int64_t(token) * p.num_heads + i / kHeadDim;
        const uint8_t* row = static_cast<const uint8_t*>(p.q) + head * p.entry.row_bytes;
        query[i] = channel(p.format, row, p.q_scale + 4 * head, i % kHeadDim);
    }
    for (int i = threadIdx.x; i < p.num_heads; i += kThreads) {
        const float weight = p.weights[int64_t(token) * p.num_heads + i];
        weights[i] = p.rounds ? rounded<bf16>(weight) : weight;
    }
    __syncthreads();

    Key* scores = static_cast<Key*>(p.scores) + (token - p.row_begin) * p.stride;
    const int table_row = p.step.table_rows[p.step.seq(token)];
    for (int entry = blockIdx.y * kThreads + threadIdx.x; entry < visible; entry += gridDim.y * kThreads) {
        const int page = p.table.page(table_row, entry / p.entry.per_page), in_page = entry % p.entry.per_page;
        if (!p.pool.has(page)) {
            scores[entry] = 0;  // as NaN
            continue;
        }
        const uint8_t* row = p.pool.at(page) + p.entry.row(in_page);
        const uint8_t* scales = p.pool.at(page) + p.entry.scales(in_page);
        const float scale = p.format == Format::kFp8 ? read<float>(scales) : 1.0f;
        float key[kHeadDim];
#pragma unroll
        for (int c = 0; c < kHeadDim; ++c) key[c] = channel(p.format, row, scales, c) * scale;
        float sum = 0;
        for (int head = 0; head < p.num_heads; ++head) {
            const float4* q = shared + head * (kHeadDim / 4);
            float4 dots = {};
#pragma unroll
            for (int c = 0; c < kHeadDim; c += 4) {
                const float4 x = q[c / 4];
                dots.x = fmaf(x.x, key[c], dots.x);
                dots.y = fmaf(x.y, key[c + 1], dots.y);
                dots.z = fmaf(x.z, key[c + 2], dots.z);
                dots.w = fmaf(x.w, key[c + 3], dots.w);
            }
            float dot = (dots.x + dots.y) + (dots.z + dots.w);
            if (p.rounds) dot = rounded<bf16>(dot);
            const float weighted = __fmul_rn(max_nan(dot, 0.0f), weights[head]);
            sum += p.rounds ? rounded<bf16>(weighted) : weighted;
        }
        scores[entry] = ordered<Key>(sum);
    }
}

template <class Key>
void start(const Params& p, cudaStream_t stream) {
    const int rows = p.row_end - p.row_begin, bytes = p.num_heads * (kHeadDim + 1) * sizeof(float);
    const int room = max(1, 8 * device().multiprocessors / rows);
    cudaFuncSetAttribute(kernel<Key>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<Key><<<dim3(rows, min(room, ceil_div(p.width, kThreads))), kThreads, bytes, stream>>>(p);
    check_launch("index_topk scores");
}

}  // namespace

void plain_scores(const Params& p, cudaStream_t stream) {
    if (p.rounds) {
        start<uint16_t>(p, stream);
    } else {
        start<uint32_t>(p, stream);
    }
}

}  // namespace dsv4::index_topk
