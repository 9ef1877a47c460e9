// Activations on their way to the B operands: rounded as the product asks for, in the order of the weights.
//
// Shared memory has one 16-byte slot per step, token row, chunk and lane of four, in this order: what that lane
// feeds to the two mma of that chunk. Four unused slots after each token row keep eight lanes off one another's
// banks.
#pragma once

#include "gemm/skinny.h"
#include "gemm/weights.cuh"

namespace dsv4::gemm {

static_assert(kTokenSlots == (kChunks + 1) * 4);

// A work item: some token rows of one group by the weight rows of one row tile.
struct Item {
    int group, row_tile;
    int begin, count;   // packed token rows
};

// 16 inputs of one token row, as eight pairs in memory order.
struct Sixteen {
    uint32_t pair[8];
};

__device__ __forceinline__ uint32_t pack_bf16(float x, float y) {
    const __nv_bfloat162 out = __floats2bfloat162_rn(x, y);
    return reinterpret_cast<const uint32_t&>(out);
}

__device__ __forceinline__ float2 unpack_bf16(uint32_t pair) {
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u)};
}

__device__ __forceinline__ void unpack(const uint4& v, uint32_t* words) {
    words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
}

// Largest magnitude over the 128 inputs that this and the neighbouring seven lanes hold; NaN wins.
__device__ __forceinline__ float block_amax(const Sixteen& x) {
    __nv_bfloat162 largest = __habs2(reinterpret_cast<const __nv_bfloat162&>(x.pair[0]));
#pragma unroll
    for (int i = 1; i < 8; ++i) {
        largest = __hmax2_nan(largest, __habs2(reinterpret_cast<const __nv_bfloat162&>(x.pair[i])));
    }
    float amax = max_nan(__low2float(largest), __high2float(largest));
#pragma unroll
    for (int offset = 4; offset > 0; offset /= 2) amax = max_nan(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, offset));
    return amax;
}

// Codes as operands: fp16 without their scale, or bf16 with it; both exactly.
template <class T>
__device__ __forceinline__ uint32_t decoded(uint32_t codes, float scale) {
    const uint32_t pair = e4m3_pair<__half>(codes);
    if constexpr (std::is_same_v<T, __half>) return pair;
    const float2 values = __half22float2(reinterpret_cast<const __half2&>(pair));
    return pack_bf16(values.x * scale, values.y * scale);
}

// Rounds through e4m3 in place; gives the scale.
template <class T>
__device__ __forceinline__ float round_act8(Sixteen& x) {
    const uint8_t byte = act8_scale(block_amax(x));
    const float scale = e8m0_decode(byte), inverse = e8m0_inverse(byte);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const float2 v = unpack_bf16(x.pair[i]);
        const float2 scaled = {v.x * inverse, v.y * inverse};
        x.pair[i] = decoded<T>(__nv_cvt_float2_to_fp8x2(scaled, __NV_SATFINITE, __NV_E4M3), scale);
    }
    return scale;
}

// Two octets into their slots; `u` is the lane's place among the eight that share a step.
template <class F>
__device__ __forceinline__ void store_octets(const Sixteen& x, int u, uint4* token_slots) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const uint32_t* p = x.pair + half * 4;
        uint4 slot = {p[0], p[1], p[2], p[3]};
        if constexpr (F::kInterleaved) {
            slot = {__byte_perm(p[0], p[2], 0x5410), __byte_perm(p[0], p[2], 0x7632),
                    __byte_perm(p[1], p[3], 0x5410), __byte_perm(p[1], p[3], 0x7632)};
        }
        const int q = u * 2 + half;
        token_slots[F::chunk_of(q) * 4 + F::lane_of(q)] = slot;
    }
}

// Steps first .. first + steps of all token rows of an item into shared memory. With T = fp16 `scales` gets
// the scale of each step and token row, `scale_stride` apart.
template <class F, class T>
__device__ __forceinline__ void stage(const Problem& p, const Item& item, int first, int steps, uint4* slots,
                                      float* scales, int scale_stride) {
    constexpr int kBatch = 4;  // loads under way at a time
    const int lane = threadIdx.x % 32, u = lane % 8;
    const int quads = (steps + 3) / 4, tasks = quads * item.count;
    for (int task = threadIdx.x / 32; task < tasks; task += kWarps * kBatch) {
        Sixteen x[kBatch];
        uint8_t bytes[kBatch] = {};
        int token[kBatch], step[kBatch];
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
            const int mine = min(task + b * kWarps, tasks - 1);
            token[b] = mine / quads;
            step[b] = min(mine % quads * 4 + lane / 8, steps - 1);
            const int packed = item.begin + token[b];
            const int64_t row = p.gather ? p.gather[packed] : packed;
            const int64_t at = row * p.x_row_stride + item.group * p.x_group_stride +
                               int64_t(first + step[b]) * kStepDepth + u * 16;
            if (p.act == Act::kCodes) {
                const uint4 codes = *reinterpret_cast<const uint4*>(static_cast<const uint8_t*>(p.x) + at);
                bytes[b] = p.x_scale[at / kStepDepth];
                unpack(codes, x[b].pair);
            } else {
                const uint4* from = reinterpret_cast<const uint4*>(static_cast<const bf16*>(p.x) + at);
                unpack(from[0], x[b].pair);
                unpack(from[1], x[b].pair + 4);
            }
        }
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
            float scale = 1;
            if (p.act == Act::kAct8) {
                scale = round_act8<T>(x[b]);
            } else if (p.act == Act::kCodes) {
                scale = e8m0_decode(bytes[b]);
#pragma unroll
                for (int i = 7; i >= 0; --i) {
                    x[b].pair[i] = decoded<T>(x[b].pair[i / 2] >> i % 2 * 16 & 0xFFFF, scale);
                }
            }
            // clamped lanes and tasks write again what another one writes: the same bytes
            store_octets<F>(x[b], u, slots + (step[b] * item.count + token[b]) * kTokenSlots);
            if (std::is_same_v<T, __half> && u == 0) scales[step[b] * scale_stride + token[b]] = scale;
        }
    }
}

}  // namespace dsv4::gemm
