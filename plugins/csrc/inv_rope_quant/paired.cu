// Two heads of 512 channels a warp. At this width instructions cost as much as bytes: channels stay packed
// in pairs, magnitudes are compared as integers, and both heads' rotated channels are turned in one go.
#include "common/dependent_launch.cuh"
#include "common/vectors.cuh"
#include "inv_rope_quant/inv_rope_quant.h"

namespace dsv4::inv_rope_quant {
namespace {

constexpr int kHeadDim = 512, kPairs = 32;
static_assert(kPart == 2 * kHeadDim);

struct Channels {
    uint32_t words[4];  // 8 channels in bf16
};

// The larger of two bf16 magnitudes, in both halves of a word; a NaN is larger than any number.
__device__ __forceinline__ uint32_t largest_pair(const Channels& x) {
    constexpr uint32_t kMagnitude = 0x7FFF7FFF;
    return __vmaxu2(__vmaxu2(x.words[0] & kMagnitude, x.words[1] & kMagnitude),
                    __vmaxu2(x.words[2] & kMagnitude, x.words[3] & kMagnitude));
}

// The largest magnitude of each of two blocks that 16 adjacent lanes hold: low and high half of a word.
__device__ __forceinline__ uint32_t largest_of_blocks(const Channels& low, const Channels& high) {
    const uint32_t a = largest_pair(low), b = largest_pair(high);
    uint32_t both = __vmaxu2(__byte_perm(a, b, 0x5410), __byte_perm(a, b, 0x7632));
#pragma unroll
    for (int lane = 8; lane > 0; lane /= 2) both = __vmaxu2(both, __shfl_xor_sync(kFullMask, both, lane));
    return both;
}

// Eight channels rotated as four pairs; lane i holds the angle of pair i.
__device__ __forceinline__ Channels turned(const Channels& x, int first_pair, float2 angle) {
    Channels out;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float2 own = {__shfl_sync(kFullMask, angle.x, first_pair + i),
                            __shfl_sync(kFullMask, angle.y, first_pair + i)};
        const float2 pair = rotate({bf16_low(x.words[i]), bf16_high(x.words[i])}, own);
        out.words[i] = bf16_pair(pair.x, pair.y);
    }
    return out;
}

// Eight codes of channels times a power of two: exact in bf16 as well.
__device__ __forceinline__ uint2 codes(const Channels& x, uint32_t scale) {
    const uint32_t factor = scale == 255 ? 0x7FC07FC0u : (254 - scale) * 0x00800080u;
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const __nv_bfloat162 scaled = __hmul2(reinterpret_cast<const __nv_bfloat162&>(x.words[i]),
                                              reinterpret_cast<const __nv_bfloat162&>(factor));
        const uint32_t word = reinterpret_cast<const uint32_t&>(scaled);
        pairs[i] = e4m3_pair(bf16_low(word), bf16_high(word));
    }
    return {pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16};
}

__global__ void __launch_bounds__(kThreads) kernel(Params p) {
    const int lane = threadIdx.x % 32;
    const int parts = p.row / kPart;
    const int warp = blockIdx.x * (kThreads / 32) + threadIdx.x / 32;
    const int token = warp / parts;
    if (token >= p.tokens) return;
    const int64_t begin = int64_t(warp) * kPart;
    float2 angle = rope_angle(p.positions[token], p.inv_freq[lane]);
    angle.y = -angle.y;  // the way back
    wait_for_previous();  // positions are older than the kernel ahead, which makes x
    allow_next();
    // the last chunk with its halves swapped: no lane has rotated channels of both heads then
    const int slots[kChunks] = {lane, 32 + lane, 64 + lane, 96 + (lane ^ 16)};
    Channels x[kChunks];
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
        const uint4 v = __ldcs(reinterpret_cast<const uint4*>(static_cast<const bf16*>(p.x) + begin) + slots[i]);
        x[i] = {{v.x, v.y, v.z, v.w}};
    }
    const Channels tails = turned(lane & 16 ? x[1] : x[3], lane % 8 * 4, angle);
    if ((lane & 24) == 24) x[1] = tails;
    if ((lane & 24) == 8) x[3] = tails;
    const uint32_t front = largest_of_blocks(x[0], x[1]), back = largest_of_blocks(x[2], x[3]);
    const float amax[kChunks] = {bf16_low(front), bf16_high(front), bf16_low(back), bf16_high(back)};
    uint32_t scales = 0;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
        const uint32_t scale = act8_scale(amax[i]);
        scales |= scale << (8 * i);
        reinterpret_cast<uint2*>(p.out + begin)[slots[i]] = codes(x[i], scale);
    }
    // lanes 0-15 hold the scales of blocks 0 2 4 7, the others those of 1 3 5 6
    const uint32_t other = __shfl_xor_sync(kFullMask, scales, 16);
    if (lane == 0) {
        *reinterpret_cast<uint2*>(p.scale + begin / kBlock) = {__byte_perm(scales, other, 0x5140),
                                                               __byte_perm(scales, other, 0x3762)};
    }
}

}  // namespace

bool paired_fits(const Params& p, int x_dtype) {
    return x_dtype == DSV4_BF16 && p.head_dim == kHeadDim && p.pairs == kPairs && p.row % kPart == 0 &&
           aligned(p.scale, 8);
}

void paired(const Params& p, cudaStream_t stream) {
    const int64_t warps = int64_t(p.tokens) * (p.row / kPart);
    launch_dependent("inv_rope_quant", kernel, ceil_div(warps, kThreads / 32), kThreads, 0, stream, p);
}

}  // namespace dsv4::inv_rope_quant
