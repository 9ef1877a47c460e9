#include "gemm/skinny.cuh"

namespace dsv4::gemm {

void skinny_e2m1(const Problem& problem, cudaStream_t stream) { launch_skinny<Weight::kE2M1, bf16>(problem, stream); }

}  // namespace dsv4::gemm
