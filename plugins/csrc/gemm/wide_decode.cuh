// Raw weights in shared memory to fragments of bf16 in registers, for `wide`.
//
// A fragment is 64 rows x 64 inputs of a warpgroup; of it, thread (g, q) = (lane / 4, lane % 4) of a warp holds
// rows g and g + 8 of the warp's 16, and for each of four steps of 16 inputs the columns 2q, 2q + 1, 2q + 8 and
// 2q + 9 of the step. Which inputs these columns are is free as long as x follows: of quantized weights a thread
// takes inputs 16q .. 16q + 15 of its rows, one wide read each, and `wide_inputs` puts x into that order.
#pragma once

#include "common/numbers.cuh"
#include "gemm/problem.h"
#include "gemm/wgmma.cuh"

namespace dsv4::gemm {

// The input, 0 .. 15 of thread q's 16, in column `column` (0 .. 3: 2q, 2q + 1, 2q + 8, 2q + 9) of step `step`.
template <Weight kFormat>
__host__ __device__ constexpr int input_of(int step, int column) {
    if (kFormat == Weight::kE4M3) return 4 * step + (column & 1) * 2 + column / 2;
    return 8 * (step / 2) + 2 * (step % 2) + (column & 1) * 4 + column / 2;  // kE2M1
}

// Of a weight row's 64 inputs.
constexpr int stage_bytes(Weight format) {
    return format == Weight::kBf16 ? 128 : format == Weight::kE4M3 ? 64 : 32;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ uint32_t multiply2(uint32_t a, uint32_t b) {
    uint32_t product;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}

// 2^(byte - 127) twice, as bf16; 255 is NaN.
__device__ __forceinline__ uint32_t scale2(uint32_t byte) {
    uint32_t bits = byte << 7;
    if (byte == 0 || byte == 255) bits |= 0x40;
    return bits * 0x10001;
}

// Codes lie in the low bits of each half; sign and magnitude go to where bf16 has sign, exponent and mantissa,
// which is the value times 2^-120 or 2^-126, subnormal codes included.
constexpr uint32_t kUnscaleE4M3 = 0x7B807B80;  // 2^120, twice
constexpr uint32_t kUnscaleE2M1 = 0x7E807E80;  // 2^126, twice

template <Weight kFormat>
struct Decoder;

template <>
struct Decoder<Weight::kBf16> {
    // `rows` is the warp's first row in the stage's weights.
    static __device__ __forceinline__ void fragment(uint32_t (&a)[16], const char* weights, int rows, int lane) {
        const int row = rows + lane % 16;
        const uint32_t line = shared_address(weights) + row * 128;
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            const uint32_t address = line + (((step * 2 + lane / 16) ^ (row % 8)) << 4);
            uint32_t* to = a + step * 4;
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
        }
    }
};

template <>
struct Decoder<Weight::kE4M3> {
    // `scales` for rows g and g + 8; `nans` collects, in the top bits of its bytes, whether a code was NaN.
    static __device__ __forceinline__ void fragment(uint32_t (&a)[16], uint32_t (&nans)[2], const char* weights,
                                                    int rows, int lane, const uint32_t (&scales)[2]) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = rows + lane / 4 + 8 * half;
            const uint4 raw = *reinterpret_cast<const uint4*>(weights + row * 64 + lane % 4 * 16);
            const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
            for (int step = 0; step < 4; ++step) {
                const uint32_t w = words[step];
                nans[half] |= (w & 0x7F7F7F7F) + 0x01010101;
                const uint32_t even = ((w << 8) & 0x80008000) | ((w << 4) & 0x07F007F0);
                const uint32_t odd = (w & 0x80008000) | ((w >> 4) & 0x07F007F0);
                a[step * 4 + half] = multiply2(multiply2(even, kUnscaleE4M3), scales[half]);
                a[step * 4 + half + 2] = multiply2(multiply2(odd, kUnscaleE4M3), scales[half]);
            }
        }
    }
};

template <>
struct Decoder<Weight::kE2M1> {
    // `scales` has four bytes a row, for 128 inputs; `odd` tells the second stage of these from the first.
    static __device__ __forceinline__ void fragment(uint32_t (&a)[16], const char* weights, const char* scales,
                                                    int rows, int lane, int odd) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = rows + lane / 4 + 8 * half;
            const uint2 raw = *reinterpret_cast<const uint2*>(weights + row * 32 + lane % 4 * 8);
            const uint32_t scale = scale2(static_cast<uint8_t>(scales[row * 4 + odd * 2 + lane % 4 / 2]));
            const uint32_t words[2] = {raw.x, raw.y};
#pragma unroll
            for (int word = 0; word < 2; ++word) {
                const uint32_t low = words[word], high = low >> 8;
                // nibbles 0 .. 3 of each half
                const uint32_t pairs[4] = {place(low & 0x000F000F, 0x1040), place(low & 0x00F000F0, 0x104),
                                           place(high & 0x000F000F, 0x1040), place(high & 0x00F000F0, 0x104)};
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int step = word * 2 + i / 2, column_pair = i % 2;
                    a[step * 4 + half + 2 * column_pair] = multiply2(multiply2(pairs[i], kUnscaleE2M1), scale);
                }
            }
        }
    }

    // A product puts one copy of the nibble at bits 12 .. 15 for the sign, and one at 6 .. 9 for the magnitude.
    static __device__ __forceinline__ uint32_t place(uint32_t nibbles, uint32_t copies) {
        return (nibbles * copies) & 0x81C081C0;
    }
};

#endif

}  // namespace dsv4::gemm
