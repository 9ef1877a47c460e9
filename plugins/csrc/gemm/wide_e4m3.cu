#include "gemm/wide_kernel.cuh"

namespace dsv4::gemm {

template void launch_wide<Weight::kE4M3>(const WideParams&, int, int, cudaStream_t);

}  // namespace dsv4::gemm
