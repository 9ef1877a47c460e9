#include "gemm/wide_kernel.cuh"

namespace dsv4::gemm {

template void launch_wide<Weight::kBf16>(const WideParams&, int, int, cudaStream_t);

}  // namespace dsv4::gemm
