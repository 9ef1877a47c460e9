// Tensor core products of 16 x 16 with 16 x 8, sums in fp32.
//
// Lane l holds, with g = l / 4 and t = l % 4 and two values a word, the lower k in the lower half:
//   a[0..3]   rows g, g+8, g, g+8 at k = 2t (first two), 2t + 8 (last two)
//   b[0..1]   column g at k = 2t, 2t + 8
//   c[0..3]   row g at columns 2t, 2t + 1; row g + 8 at the same
#pragma once

#include <stdint.h>

namespace dsv4::index_topk {

constexpr uint32_t kOnes = 0x3F803F80u;     // a pair of bf16

__device__ __forceinline__ void mma_bf16(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                         uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma_f16(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                        uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// bf16 of max(x, 0), NaN kept; the first in the lower half.
__device__ __forceinline__ uint32_t relu_bf16_pair(float low, float high) {
    uint32_t out;
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}

// Two products, each rounded to bf16.
__device__ __forceinline__ uint32_t mul_bf16_pair(uint32_t a, uint32_t b) {
    uint32_t out;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}

}  // namespace dsv4::index_topk
