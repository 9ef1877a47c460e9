// Two bf16 values in a word, the first in the lower half.
#pragma once

#include <stdint.h>

namespace dsv4::index_topk {

constexpr uint32_t kOnes = 0x3F803F80u;

// bf16 of max(x, 0), NaN kept.
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
