// The `wide` kernel of one weight format: out^T = W x^T by Hopper's warpgroup products, with the weight as the
// operand in registers, decoded from its raw bytes there, and x as the one in shared memory.
//
// A block stays and makes tile after tile. One warpgroup copies, two multiply.
#pragma once

#include "common/dependent_launch.cuh"
#include "gemm/wide_consumer.cuh"
#include "gemm/wide_producer.cuh"

namespace dsv4::gemm {

constexpr int kWideThreads = 384;

template <Weight kFormat, int kBlocks>
__global__ void __launch_bounds__(kWideThreads, 1) wide_kernel(const __grid_constant__ WideParams p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    using Layout = Shared<kFormat, kBlocks>;
    extern __shared__ char raw[];
    char* shared = raw + (-shared_address(raw) & 1023);
    const uint32_t full = shared_address(shared) + Layout::kBarriers, empty = full + 8 * Layout::kStages;
    if (threadIdx.x == 0) {
        for (int i = 0; i < Layout::kStages; ++i) {
            barrier_init(full + 8 * i, 4);   // one arrival from each copying warp
            barrier_init(empty + 8 * i, 8);  // and one from each multiplying warp
        }
    }
    __syncthreads();
    wait_for_previous();
    const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
    // 3 x 128 threads start with 168 registers each
    if (group == 0) {
        fewer_registers<72>();
        Producer<kFormat, kBlocks> producer{p, shared_address(shared), full, empty, thread};
        producer.run();
    } else {
        more_registers<216>();
        auto* tokens = reinterpret_cast<WideTokens*>(shared + Layout::kStages * Layout::kStage) + (group - 1);
        Consumer<kFormat, kBlocks> consumer({p, *tokens, thread, group - 1}, shared);
        consumer.run();
    }
#endif
}

template <Weight kFormat, int kBlocks>
void start_wide(const WideParams& params, int blocks, cudaStream_t stream) {
    constexpr int kBytes = Shared<kFormat, kBlocks>::kBytes;
    launch_kernel("gemm wide", wide_kernel<kFormat, kBlocks>,
                  {int64_t(blocks) * params.splits, kWideThreads, kBytes, params.splits, params.after_inputs}, stream,
                  params);
}

template <Weight kFormat>
void launch_wide(const WideParams& params, int row_halves, int blocks, cudaStream_t stream) {
    if (row_halves == 2) {
        start_wide<kFormat, 2>(params, blocks, stream);
    } else {
        start_wide<kFormat, 1>(params, blocks, stream);
    }
}

}  // namespace dsv4::gemm
