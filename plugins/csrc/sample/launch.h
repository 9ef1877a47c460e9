#pragma once

#include <cuda_runtime_api.h>

#include "sample/sample.h"

namespace dsv4::sample {

void run(const Params& p, cudaStream_t stream);

}  // namespace dsv4::sample
