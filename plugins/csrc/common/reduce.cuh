// Sums and maxima over a warp and over a block.
#pragma once

namespace dsv4 {

constexpr unsigned kFullMask = 0xFFFFFFFFu;

template <int Width = 32>
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int offset = Width / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kFullMask, x, offset, Width);
    return x;
}

// The sum over a block of `Threads`, in every thread; `scratch` is Threads / 32 floats of shared memory.
template <int Threads>
__device__ __forceinline__ float block_sum(float x, float* scratch) {
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
    __syncthreads();
    float total = 0;
#pragma unroll
    for (int warp = 0; warp < Threads / 32; ++warp) total += scratch[warp];
    __syncthreads();
    return total;
}

}  // namespace dsv4
