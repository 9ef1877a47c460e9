// What ops check of an e4m3 weight's scales before they describe a product.
#pragma once

#include "common/op.h"

namespace dsv4::gemm {

// Raises unless `scale` has a byte for every 128 x 128 block of the weight.
inline void require_block_scale(const Dsv4Tensor& scale, const Dsv4Tensor& weight, const char* name) {
    require_dense(scale, name);
    const int rows = ceil_div(weight.shape[0], 128), cols = ceil_div(weight.shape[1], 128);
    DSV4_REQUIRE(scale.rank == 2 && scale.shape[0] == rows && scale.shape[1] == cols,
                 "'%s' has %lld x %lld bytes; expected %d x %d, one per 128 x 128 weights", name,
                 static_cast<long long>(scale.shape[0]), static_cast<long long>(scale.shape[1]), rows, cols);
}

}  // namespace dsv4::gemm
