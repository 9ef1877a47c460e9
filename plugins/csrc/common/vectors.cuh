// Runs of channels that one lane holds as fp32: loaded, stored and packed 4 or 8 at a time.
#pragma once

#include "common/numbers.cuh"
#include "common/reduce.cuh"
#include "common/rope.cuh"

namespace dsv4 {

__device__ __forceinline__ uint32_t bf16_pair(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
}

__device__ __forceinline__ float bf16_low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float bf16_high(uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000u); }

// Two e4m3 codes, the first in the low byte; the packed conversion is one instruction.
__device__ __forceinline__ uint32_t e4m3_pair(float low, float high) {
    return __nv_cvt_float2_to_fp8x2({low, high}, __NV_SATFINITE, __NV_E4M3);
}

// What e4m3_pair packed.
__device__ __forceinline__ float2 e4m3_pair_values(uint32_t codes) {
    const __half2_raw halves = __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes), __NV_E4M3);
    return __half22float2(__half2(halves));
}

// Channels that are read once: they are the first to leave the caches.
__device__ __forceinline__ void load_once(const float* from, float (&x)[4]) {
    const float4 v = __ldcs(reinterpret_cast<const float4*>(from));
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
}

__device__ __forceinline__ void load_once(const float* from, float (&x)[8]) {
    const float4 a = __ldcs(reinterpret_cast<const float4*>(from));
    const float4 b = __ldcs(reinterpret_cast<const float4*>(from) + 1);
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}

__device__ __forceinline__ void load_once(const bf16* from, float (&x)[8]) {
    const uint4 v = __ldcs(reinterpret_cast<const uint4*>(from));
    x[0] = bf16_low(v.x), x[1] = bf16_high(v.x), x[2] = bf16_low(v.y), x[3] = bf16_high(v.y);
    x[4] = bf16_low(v.z), x[5] = bf16_high(v.z), x[6] = bf16_low(v.w), x[7] = bf16_high(v.w);
}

__device__ __forceinline__ void store(float* to, const float (&x)[4]) {
    *reinterpret_cast<float4*>(to) = {x[0], x[1], x[2], x[3]};
}

__device__ __forceinline__ void store(float* to, const float (&x)[8]) {
    *reinterpret_cast<float4*>(to) = {x[0], x[1], x[2], x[3]};
    *(reinterpret_cast<float4*>(to) + 1) = {x[4], x[5], x[6], x[7]};
}

__device__ __forceinline__ void store(bf16* to, const float (&x)[4]) {
    *reinterpret_cast<uint2*>(to) = {bf16_pair(x[0], x[1]), bf16_pair(x[2], x[3])};
}

__device__ __forceinline__ void store(bf16* to, const float (&x)[8]) {
    *reinterpret_cast<uint4*>(to) = {bf16_pair(x[0], x[1]), bf16_pair(x[2], x[3]), bf16_pair(x[4], x[5]),
                                     bf16_pair(x[6], x[7])};
}

// Four e4m3 codes in a word.
__device__ __forceinline__ uint32_t e4m3_four(const float* x, float factor) {
    const uint32_t low = e4m3_pair(__fmul_rn(x[0], factor), __fmul_rn(x[1], factor));
    return low | e4m3_pair(__fmul_rn(x[2], factor), __fmul_rn(x[3], factor)) << 16;
}

__device__ __forceinline__ void store_e4m3(uint8_t* to, const float (&x)[4], float factor) {
    *reinterpret_cast<uint32_t*>(to) = e4m3_four(x, factor);
}

__device__ __forceinline__ void store_e4m3(uint8_t* to, const float (&x)[8], float factor) {
    *reinterpret_cast<uint2*>(to) = {e4m3_four(x, factor), e4m3_four(x + 4, factor)};
}

// The largest magnitude of what `Lanes` adjacent lanes hold, NaN if there is one.
template <int Lanes, int N>
__device__ __forceinline__ float largest(const float (&x)[N]) {
    float amax = fabsf(x[0]);
#pragma unroll
    for (int i = 1; i < N; ++i) amax = max_nan(amax, fabsf(x[i]));
#pragma unroll
    for (int lane = Lanes / 2; lane > 0; lane /= 2) amax = max_nan(amax, __shfl_xor_sync(kFullMask, amax, lane));
    return amax;
}

template <class T, int N>
__device__ __forceinline__ void round_all(float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N && sizeof(T) == 2; i += 2) {
        const uint32_t pair = bf16_pair(x[i], x[i + 1]);
        x[i] = bf16_low(pair);
        x[i + 1] = bf16_high(pair);
    }
}

// The angles of the pairs among N channels from `channel` on.
template <int N>
struct Angles {
    float2 at[N / 2];
};

// Lane i of the warp holds the angle of pair i, at most 32 of them; all lanes must come here.
template <int N>
__device__ __forceinline__ Angles<N> borrow_angles(float2 own, int channel, int tail) {
    Angles<N> out;
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
        const int pair = (channel - tail) / 2 + i;
        out.at[i] = {__shfl_sync(kFullMask, own.x, pair & 31), __shfl_sync(kFullMask, own.y, pair & 31)};
    }
    return out;
}

// Rotates N channels from `channel` on if they lie behind `tail`.
template <class T, int N>
__device__ __forceinline__ void rotate_channels(float (&x)[N], int channel, int tail, const Angles<N>& angles) {
    float turned[N];
#pragma unroll
    for (int i = 0; i < N; i += 2) {
        const float2 pair = rotate({x[i], x[i + 1]}, angles.at[i / 2]);
        turned[i] = pair.x;
        turned[i + 1] = pair.y;
    }
    round_all<T>(turned);
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = channel < tail ? x[i] : turned[i];
}

}  // namespace dsv4
