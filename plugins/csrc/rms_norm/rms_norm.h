#pragma once
#include <cuda_bf16.h>

#include "common/op.h"

namespace dsv4::rms_norm {

struct Params {
    const void* x;                // [rows, width]
    const __nv_bfloat16* weight;  // [width]
    void* out;                    // [rows, width]
    int64_t rows;
    int width;
    float eps;
};

}  // namespace dsv4::rms_norm
