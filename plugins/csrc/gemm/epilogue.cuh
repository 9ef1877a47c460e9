// What a product does with a finished sum: the roundings of the reference.
#pragma once

#include "common/numbers.cuh"
#include "gemm/problem.h"

namespace dsv4::gemm {

__device__ __forceinline__ float min_nan(float a, float b) {
    float out;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
    return out;
}

// silu(gate) * up of the packed token row, times its row weight. Both sums are first rounded to T, the type
// of x, and clamped: the gate from above, up on both sides; NaN stays.
template <class T>
__device__ __forceinline__ float swiglu(const Problem& p, int packed, float gate_sum, float up_sum) {
    const float gate = min_nan(rounded<T>(gate_sum), p.swiglu_limit);
    const float up = max_nan(min_nan(rounded<T>(up_sum), p.swiglu_limit), -p.swiglu_limit);
    const float value = gate / (1.0f + expf(-gate)) * up;
    return p.row_weights ? value * p.row_weights[packed] : value;
}

__device__ __forceinline__ void store(const Problem& p, int group, int packed, int column, float value) {
    const int64_t row = p.scatter ? p.scatter[packed] : packed;
    const int64_t at = row * p.out_row_stride + group * p.out_group_stride + column;
    if (p.out_dtype == DSV4_F32) {
        static_cast<float*>(p.out)[at] = value;
    } else {
        static_cast<bf16*>(p.out)[at] = from_float<bf16>(value);
    }
}

}  // namespace dsv4::gemm
