// Merges the partial results of splits: a few warps take 128 channels of one head of one token, each warp some
// of the splits; then sink, division, rotation back.
#include "common/dependent_launch.cuh"
#include "common/reduce.cuh"
#include "common/rope.cuh"
#include "sparse_attention/decode_plan.h"
#include "sparse_attention/keys.cuh"

namespace dsv4::sparse_attention {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kChannels = 128, kParts = kDecodeDim / kChannels;
constexpr float kLog2e = 1.4426950408889634f;

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(kFullMask, x, offset));
    return x;
}

struct Total {
    float peak, sum;
};

// Peak and total over all splits, in every lane.
__device__ __forceinline__ Total total_of(const float2* stats, int used) {
    const int lane = threadIdx.x % 32;
    float peak = -INFINITY;
    for (int split = lane; split < used; split += 32) peak = fmaxf(peak, stats[split].x);
    peak = warp_max(peak);
    if (peak == -INFINITY) peak = 0;
    float sum = 0;
    for (int split = lane; split < used; split += 32) sum += stats[split].y * exp2f(stats[split].x - peak);
    return {peak, warp_sum(sum)};
}

// This lane's four channels over the splits from `first` on, `Stride` apart.
template <int Stride>
__device__ __forceinline__ float4 weighted(const float* values, const float2* stats, int first, int used, float peak) {
    float4 sum{};
#pragma unroll 4
    for (int split = first; split < used; split += Stride) {
        const float weight = exp2f(stats[split].x - peak);
        const float4 value = *reinterpret_cast<const float4*>(values + int64_t(split) * kDecodeDim);
        sum.x += weight * value.x;
        sum.y += weight * value.y;
        sum.z += weight * value.z;
        sum.w += weight * value.w;
    }
    return sum;
}

__device__ __forceinline__ void write(const Params& p, const Query& query, int head, int channel, float4 sum,
                                      float total) {
    const float factor = total == 0 ? 0.0f : 1 / total;
    float2 pairs[2] = {{sum.x * factor, sum.y * factor}, {sum.z * factor, sum.w * factor}};
    constexpr int kTail = kDecodeDim - 2 * kDecodeRopePairs;
    __nv_bfloat162 out[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        if (p.inverse_rope && channel >= kTail) {
            float2 angle = rope_angle(query.position, p.inv_freq[(channel - kTail) / 2 + i]);
            angle.y = -angle.y;
            pairs[i] = rotate({rounded<bf16>(pairs[i].x), rounded<bf16>(pairs[i].y)}, angle);
        }
        out[i] = __floats2bfloat162_rn(pairs[i].x, pairs[i].y);
    }
    bf16* to = static_cast<bf16*>(p.out) + (int64_t(query.token) * p.heads + head) * kDecodeDim + channel;
    *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(out);
}

// `Warps` of a block's eight warps work on one (token, head, part).
template <int Warps>
__global__ void __launch_bounds__(kThreads)
    kernel(const __grid_constant__ Params p, Rows rows, int tile, Partials partials) {
    __shared__ float4 sums[kWarps][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t unit = int64_t(blockIdx.x) * (kWarps / Warps) + warp / Warps;
    const int row = static_cast<int>(unit / (p.heads * kParts)), rest = static_cast<int>(unit % (p.heads * kParts));
    const int head = rest / kParts, channel = rest % kParts * kChannels + lane * 4;
    const bool inside = row < rows.count;
    const Query query = Query::of(p, rows.first + (inside ? row : 0));
    const int used = inside ? Share::of(query.slots, tile, partials.splits, 0).used : 0;
    wait_for_previous();
    const bool merges = used > 1;  // one split has written the output itself
    float4 sum{};
    Total total{};
    if (merges) {
        const int64_t at = partials.index(row, head, 0);
        const float2* stats = partials.stats + at;
        total = total_of(stats, used);
        sum = weighted<Warps>(partials.values + at * kDecodeDim + channel, stats, warp % Warps, used, total.peak);
    }
    if (Warps > 1) {
        sums[warp][lane] = sum;
        __syncthreads();
        if (warp % Warps != 0) return;
#pragma unroll
        for (int other = 1; other < Warps; ++other) {
            const float4 more = sums[warp + other][lane];
            sum.x += more.x;
            sum.y += more.y;
            sum.z += more.z;
            sum.w += more.w;
        }
    }
    if (!merges) return;
    write(p, query, head, channel, sum, total.sum + exp2f(p.sinks[head] * kLog2e - total.peak));
}

template <int Warps>
void launch(const Params& p, Rows rows, const Plan& plan, const Partials& partials, cudaStream_t stream) {
    const int blocks = ceil_div(int64_t(rows.count) * p.heads * kParts, kWarps / Warps);
    launch_kernel("sparse_attention combine", kernel<Warps>, {blocks, kThreads, 0, 1, true}, stream, p, rows,
                  plan.shape.tile, partials);
}

}  // namespace

void combine(const Params& p, Rows rows, const Plan& plan, const Partials& partials, cudaStream_t stream) {
    if (plan.splits > 8) {
        launch<8>(p, rows, plan, partials, stream);
    } else {
        launch<1>(p, rows, plan, partials, stream);
    }
}

}  // namespace dsv4::sparse_attention
