#include "gemm/skinny.cuh"

namespace dsv4::gemm {

void skinny_bf16(const Problem& problem, cudaStream_t stream) { launch_skinny<Weight::kBf16, bf16>(problem, stream); }

}  // namespace dsv4::gemm
