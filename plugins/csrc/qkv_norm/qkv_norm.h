#pragma once
#include <cuda_bf16.h>

#include "common/op.h"

namespace dsv4::qkv_norm {

struct Part {
    const __nv_bfloat16* weight;  // [width]
    void* out;                    // [rows, width]
    int begin, width;             // columns of x
};

struct Params {
    const void* x;                // [rows, row_width]
    Part parts[2];                // q, then kv
    int64_t rows;
    int row_width;
    float eps;
};

}  // namespace dsv4::qkv_norm
