// Rows of 128 quantized channels in registers: four lanes share a row, each has a slice of 32 channels.
//
// Which channels, and in which order, is the same for keys and queries of a format; the products only need
// that. It is chosen so that lanes read 16 bytes side by side and pairs come out of few instructions.
// Values are exact: fp4 with its scales and bf16 as bf16, e4m3 codes as fp16 with the scale left out.
#pragma once

#include "common/numbers.cuh"
#include "index_topk/index_topk.h"
#include "index_topk/pairs.cuh"

namespace dsv4::index_topk {

constexpr int kSliceWords = 16;     // 32 values as pairs

template <Format kFormat>
struct Slice;

template <>
struct Slice<Format::kFp4> {
    static constexpr int kRowBytes = 64;
    static constexpr bool kHalf = false;    // values are fp16, not bf16
    uint4 codes;                            // of one scale block
    uint32_t scale;

    __device__ __forceinline__ void load(const uint8_t* row, const uint8_t* scales, int lane) {
        codes = __ldg(reinterpret_cast<const uint4*>(row) + lane);
        scale = __ldg(scales + lane);
    }
    // Pairs are codes k and k + 4 of a 32-bit word: one shift serves both. A code's three low bits make a
    // bf16 of 2^-126 its value, denormals included.
    __device__ __forceinline__ void decode(uint32_t (&out)[kSliceWords]) const {
        const uint32_t factor = scale == 0 ? 0x40 : scale == 255 ? 0x7FC0 : scale << 7;
        const uint32_t factors = factor << 16 | factor;
        const uint32_t word[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t magnitude[4] = {word[i] << 6, word[i] << 2, word[i] >> 2, word[i] >> 6};
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const uint32_t bits = (magnitude[k] & 0x01C001C0u) | (word[i] << (12 - 4 * k) & 0x80008000u);
                out[4 * i + k] = mul_bf16_pair(mul_bf16_pair(bits, 0x7E807E80u), factors);
            }
        }
    }
};

template <>
struct Slice<Format::kFp8> {
    static constexpr int kRowBytes = 128;
    static constexpr bool kHalf = true;
    uint4 codes[2];

    __device__ __forceinline__ void load(const uint8_t* row, const uint8_t*, int lane) {
#pragma unroll
        for (int i = 0; i < 2; ++i) codes[i] = __ldg(reinterpret_cast<const uint4*>(row) + 4 * i + lane);
    }
    __device__ __forceinline__ void decode(uint32_t (&out)[kSliceWords]) const {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint32_t word[4] = {codes[i].x, codes[i].y, codes[i].z, codes[i].w};
#pragma unroll
            for (int k = 0; k < 8; ++k) {
                const uint16_t pair = word[k / 2] >> (16 * (k % 2));
                asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(out[8 * i + k]) : "h"(pair));
            }
        }
    }
};

template <>
struct Slice<Format::kBf16> {
    static constexpr int kRowBytes = 256;
    static constexpr bool kHalf = false;
    uint4 values[4];

    __device__ __forceinline__ void load(const uint8_t* row, const uint8_t*, int lane) {
#pragma unroll
        for (int i = 0; i < 4; ++i) values[i] = __ldg(reinterpret_cast<const uint4*>(row) + 4 * i + lane);
    }
    __device__ __forceinline__ void decode(uint32_t (&out)[kSliceWords]) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            out[4 * i] = values[i].x, out[4 * i + 1] = values[i].y;
            out[4 * i + 2] = values[i].z, out[4 * i + 3] = values[i].w;
        }
    }
};

}  // namespace dsv4::index_topk
