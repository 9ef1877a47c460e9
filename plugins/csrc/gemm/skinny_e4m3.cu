#include "gemm/skinny.cuh"

namespace dsv4::gemm {

// Where both operands are e4m3, fp16 holds their codes and decoding is one conversion; the scales are left
// for the sums.
void skinny_e4m3(const Problem& problem, cudaStream_t stream) {
    if (problem.act == Act::kNone) {
        launch_skinny<Weight::kE4M3, bf16>(problem, stream);
    } else {
        launch_skinny<Weight::kE4M3, __half>(problem, stream);
    }
}

}  // namespace dsv4::gemm
