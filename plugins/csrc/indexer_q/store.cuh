// Quantizes a transformed head and writes its row; a head is eight lanes of 16 channels, as in launch.cu.
#pragma once

#include "common/vectors.cuh"
#include "indexer_q/indexer_q.h"

namespace dsv4::indexer_q {

// NaN if one of eight values is NaN.
__device__ __forceinline__ float largest_of_eight(const float* x) {
    float amax = fabsf(x[0]);
#pragma unroll
    for (int i = 1; i < 8; ++i) amax = max_nan(amax, fabsf(x[i]));
    return amax;
}

template <int kLanes>
__device__ __forceinline__ float largest_of_lanes(float amax) {
#pragma unroll
    for (int bit = 1; bit < kLanes; bit *= 2) amax = max_nan(amax, __shfl_xor_sync(kFullMask, amax, bit));
    return amax;
}

// e2m1_encode for values with the 8 significant bits of bf16. Divided by 2^126 they have the code's three
// bits in bits 22-24, with a denormal where e2m1 has one; 8 bits are few enough to survive as a denormal
// whatever decides the rounding.
__device__ __forceinline__ uint32_t e2m1_encode_short(float x) {
    const uint32_t bits = __float_as_uint(__fmul_rn(fabsf(x), 0x1p-126f));
    const uint32_t code = (bits + 0x1FFFFF + (bits >> 22 & 1)) >> 22;
    return min(code, 7u) | (__float_as_uint(x) >> 28 & 8);
}

// Eight codes, the first in the lowest nibble.
template <class T>
__device__ __forceinline__ uint32_t e2m1_encode_8(const float* x, float inverse) {
    uint32_t codes = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const float scaled = __fmul_rn(x[i], inverse);
        codes |= (sizeof(T) == 2 ? e2m1_encode_short(scaled) : e2m1_encode(scaled)) << (4 * i);
    }
    return codes;
}

// x[8 * half + i] is channel 64 * half + 8 * lane + i of head `row`. Returns what the head's weight takes
// over: the scale of an fp8 row, else 1. All lanes of the warp must come here; only `valid` ones write.
template <class T, Format kFormat>
__device__ __forceinline__ float store(const Params& p, int64_t row, int lane, const float (&x)[16], bool valid) {
    if constexpr (kFormat == Format::kFp4) {
        uint32_t bytes[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            bytes[half] = act4_scale(largest_of_lanes<4>(largest_of_eight(x + 8 * half)));
            const uint32_t codes = e2m1_encode_8<T>(x + 8 * half, e8m0_inverse(bytes[half]));
            if (valid) reinterpret_cast<uint32_t*>(p.out)[row * 16 + 8 * half + lane] = codes;
        }
        const uint32_t own = bytes[0] | bytes[1] << 16;  // blocks 0 and 2, or in lanes 4-7 blocks 1 and 3
        const uint32_t other = __shfl_xor_sync(kFullMask, own, 4);
        if (valid && lane == 0) reinterpret_cast<uint32_t*>(p.out_scale)[row] = own | other << 8;
        return 1.0f;
    } else if constexpr (kFormat == Format::kFp8) {
        const uint8_t byte = act8_scale(largest_of_lanes<8>(max_nan(largest_of_eight(x), largest_of_eight(x + 8))));
        const float inverse = e8m0_inverse(byte);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const uint2 codes = {e4m3_four(x + 8 * half, inverse), e4m3_four(x + 8 * half + 4, inverse)};
            if (valid) reinterpret_cast<uint2*>(p.out)[row * 16 + 8 * half + lane] = codes;
        }
        return e8m0_decode(byte);
    } else if constexpr (kFormat == Format::kBf16) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float* from = x + 8 * half;
            const uint4 words = {bf16_pair(from[0], from[1]), bf16_pair(from[2], from[3]), bf16_pair(from[4], from[5]),
                                 bf16_pair(from[6], from[7])};
            if (valid) reinterpret_cast<uint4*>(p.out)[row * 16 + 8 * half + lane] = words;
        }
        return 1.0f;
    } else {
#pragma unroll
        for (int i = 0; i < 16; i += 4) {
            const int chunk = 16 * (i / 8) + 2 * lane + i % 8 / 4;
            if (valid) reinterpret_cast<float4*>(p.out)[row * 32 + chunk] = {x[i], x[i + 1], x[i + 2], x[i + 3]};
        }
        return 1.0f;
    }
}

}  // namespace dsv4::indexer_q
