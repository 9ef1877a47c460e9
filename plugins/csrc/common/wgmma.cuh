// What surrounds Hopper's asynchronous products of a warpgroup; the products themselves are where they are used.
//
// Operands lie in shared memory in rows of 128 bytes whose 16-byte chunks are exchanged by the 128-byte swizzle
// (chunk index xor row % 8), eight rows in 1,024 bytes; a tile starts at a multiple of that.
#pragma once

#include <stdint.h>

namespace dsv4 {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Before products, when registers that they use have been written.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Returns when at most `Pending` of the latest groups are unfinished.
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// Keeps the compiler from moving what makes or uses registers of a product past fences and waits.
template <int N>
__device__ __forceinline__ void hold(float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(x[i])::"memory");
}
template <int N>
__device__ __forceinline__ void hold(uint32_t (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+r"(x[i])::"memory");
}

// Describes the operand that starts at `address`; 16 bytes further along a row are +1. `block_bytes` is the step from
// 64 values of M or N to the next 64 where these run along the rows, and means nothing where K does.
__device__ __forceinline__ uint64_t wgmma_operand(uint32_t address, uint32_t block_bytes = 16) {
    constexpr uint64_t kSwizzle128 = uint64_t(1) << 62;
    constexpr uint64_t kEightRows = uint64_t(1024 >> 4) << 32;  // bytes from 8 rows to the next 8
    return kSwizzle128 | kEightRows | uint64_t(block_bytes >> 4) << 16 | (address & 0x3FFFF) >> 4;
}

// A warpgroup's share of the registers, from here on.
template <int Registers>
__device__ __forceinline__ void more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace dsv4
