// Number formats on the device, bit for bit those of plugins/reference/codecs.py.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <stdint.h>

namespace dsv4 {

using bf16 = __nv_bfloat16;

constexpr float kE4M3Max = 448.0f;
constexpr float kAct8Floor = 1e-4f;            // least amax of an act8 block
constexpr float kAct4Floor = 6 * 0x1p-126f;    // least amax of an act4 block

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(bf16 x) { return __bfloat162float(x); }

template <class T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) { return x; }
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float x) { return __float2bfloat16_rn(x); }

// What x is after a trip through T.
template <class T>
__device__ __forceinline__ float rounded(float x) { return to_float(from_float<T>(x)); }

// 2^(byte - 127); byte 255 is NaN.
__device__ __forceinline__ float e8m0_decode(uint8_t byte) {
    const uint32_t bits = byte == 0 ? 0x00400000u : byte == 255 ? 0x7FC00000u : uint32_t(byte) << 23;
    return __uint_as_float(bits);
}

// 2^(127 - byte): what a value is multiplied by to divide it by the scale.
__device__ __forceinline__ float e8m0_inverse(uint8_t byte) {
    return byte == 255 ? __uint_as_float(0x7FC00000u)
         : byte == 254 ? __uint_as_float(0x00400000u)
                       : __uint_as_float(uint32_t(254 - byte) << 23);
}

// Byte of the least power of two that is not below x (positive); NaN gives 255.
__device__ __forceinline__ uint8_t e8m0_ceil(float x) {
    const uint32_t bits = __float_as_uint(x);
    const uint32_t exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0);
    return exponent > 255 ? 255 : exponent;
}

// NaN wins, as in torch's amax and clamp: a block with a NaN has a NaN scale.
__device__ __forceinline__ float max_nan(float a, float b) {
    float out;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
    return out;
}

// Scale byte of an act8 block whose largest magnitude is `amax`.
__device__ __forceinline__ uint8_t act8_scale(float amax) {
    return e8m0_ceil(__fmul_rn(max_nan(amax, kAct8Floor), 1.0f / kE4M3Max));
}

__device__ __forceinline__ uint8_t act4_scale(float amax) {
    return e8m0_ceil(__fmul_rn(max_nan(amax, kAct4Floor), 1.0f / 6.0f));
}

// Nearest e4m3 code, ties to even, saturating; NaN stays NaN.
__device__ __forceinline__ uint8_t e4m3_encode(float x) {
    return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}

__device__ __forceinline__ float e4m3_decode(uint8_t code) {
    const __half_raw half = __nv_cvt_fp8_to_halfraw(code, __NV_E4M3);
    return __half2float(half);
}

// Nearest e2m1 code, ties to even, saturating. 0..7 are 0 .5 1 1.5 2 3 4 6, 8..15 their negatives.
__device__ __forceinline__ uint8_t e2m1_encode(float x) {
    const float a = fabsf(x);
    const uint8_t code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) +
                         (a >= 3.5f) + (a > 5.0f);
    return code | (signbit(x) ? 8 : 0);
}

__device__ __forceinline__ float e2m1_decode(uint8_t code) {
    const uint32_t m = code & 7;
    // as a denormal of 2^-126: exponent and mantissa bits keep their meaning
    const float magnitude = __uint_as_float(m << 22) * 0x1p126f;
    return code & 8 ? -magnitude : magnitude;
}

}  // namespace dsv4
