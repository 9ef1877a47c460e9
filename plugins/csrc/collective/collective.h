#pragma once
#include "common/op.h"

namespace dsv4::collective {

// `count` elements in the other format, each rounded once.
void widen(const void* bf16, float* to, int64_t count, cudaStream_t stream);
void narrow(const float* from, void* bf16, int64_t count, cudaStream_t stream);

// [ranks, rows, cols] -> [rows, ranks * cols]
void interleave(const float* gathered, float* out, int ranks, int64_t rows, int64_t cols, cudaStream_t stream);

}  // namespace dsv4::collective
