// Scores as unsigned integers of the same order: NaN is 0, below every number; zeros of both signs are equal.
#pragma once

#include "common/numbers.cuh"

namespace dsv4::index_topk {

template <class Key>
__device__ __forceinline__ Key ordered(float score);

template <>
__device__ __forceinline__ uint32_t ordered<uint32_t>(float score) {
    const uint32_t bits = __float_as_uint(score);
    if (score != score) return 0;
    if (score == 0) return 0x80000000u;
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// Of the score rounded to bf16.
template <>
__device__ __forceinline__ uint16_t ordered<uint16_t>(float score) {
    return ordered<uint32_t>(rounded<bf16>(score)) >> 16;
}

}  // namespace dsv4::index_topk
