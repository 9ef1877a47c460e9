#include "gemm/wide_kernel.cuh"

namespace dsv4::gemm {

template void launch_wide_codes<Weight::kE4M3>(const WideParams&, int, cudaStream_t);

}  // namespace dsv4::gemm
