// Hopper's warpgroup products as the `wide` kernels use them, and copies that clear what they do not copy.
#pragma once

#include "common/barrier.cuh"
#include "common/cluster.cuh"
#include "common/wgmma.cuh"

namespace dsv4::gemm {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Copies 16 bytes, or clears them where there is nothing to copy; `from` may then be any address.
__device__ __forceinline__ void copy_or_clear_16(uint32_t to, const void* from, bool any) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(any ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void copy_or_clear_4(uint32_t to, const void* from, bool any) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(any ? 4 : 0) : "memory");
}

// From another block's shared memory, at the place that has this address in one's own.
__device__ __forceinline__ float load_from_block(uint32_t address, int rank) {
    float value;
    asm volatile("{.reg .b32 there; mapa.shared::cluster.u32 there, %1, %2; ld.shared::cluster.f32 %0, [there];}"
                 : "=f"(value) : "r"(address), "r"(rank) : "memory");
    return value;
}

// One of the named barriers 1 to 15, for the 128 threads of a warpgroup.
__device__ __forceinline__ void sync_warpgroup(int name) { asm volatile("bar.sync %0, 128;" ::"r"(name) : "memory"); }

#define DSV4_ACC8(i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])
#define DSV4_ACC16(i) DSV4_ACC8(i), DSV4_ACC8(i + 8)
#define DSV4_R16 "%0,%1,%2,%3,%4,%5,%6,%7"
#define DSV4_R32 DSV4_R16 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define DSV4_R48 DSV4_R32 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define DSV4_R64 DSV4_R48 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define DSV4_R80 DSV4_R64 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define DSV4_R96 DSV4_R80 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define DSV4_R112 DSV4_R96 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define DSV4_R128 DSV4_R112 ",%56,%57,%58,%59,%60,%61,%62,%63"
// Operands after the N / 2 accumulators: four of a, then b, and whether d is added to.
#define DSV4_PRODUCT(n, a0, a1, a2, a3, b0, ...)                                                                    \
    if constexpr (N == n) {                                                                                         \
        asm volatile("{.reg .pred add; setp.ne.b32 add, 1, 0; wgmma.mma_async.sync.aligned.m64n" #n                 \
                     "k16.f32.bf16.bf16 {" DSV4_R##n "}, {%" #a0 ",%" #a1 ",%" #a2 ",%" #a3 "}, %" #b0              \
                     ", add, 1, 1, 0;}"                                                                             \
                     : __VA_ARGS__ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                           \
    }

// d += a * b^T. a is this thread's part of 64 rows x 16 inputs: row thread / 4 of its warp's 16 rows and the row 8
// below, columns 2 * (thread % 4) + {0, 1} and those 8 further. b is a swizzled tile of N rows.
template <int N>
__device__ __forceinline__ void multiply_add(float (&d)[64], const uint32_t* a, uint64_t b) {
    static_assert(N % 16 == 0 && N >= 16 && N <= 128);
    DSV4_PRODUCT(16, 8, 9, 10, 11, 12, DSV4_ACC8(0))
    DSV4_PRODUCT(32, 16, 17, 18, 19, 20, DSV4_ACC16(0))
    DSV4_PRODUCT(48, 24, 25, 26, 27, 28, DSV4_ACC16(0), DSV4_ACC8(16))
    DSV4_PRODUCT(64, 32, 33, 34, 35, 36, DSV4_ACC16(0), DSV4_ACC16(16))
    DSV4_PRODUCT(80, 40, 41, 42, 43, 44, DSV4_ACC16(0), DSV4_ACC16(16), DSV4_ACC8(32))
    DSV4_PRODUCT(96, 48, 49, 50, 51, 52, DSV4_ACC16(0), DSV4_ACC16(16), DSV4_ACC16(32))
    DSV4_PRODUCT(112, 56, 57, 58, 59, 60, DSV4_ACC16(0), DSV4_ACC16(16), DSV4_ACC16(32), DSV4_ACC8(48))
    DSV4_PRODUCT(128, 64, 65, 66, 67, 68, DSV4_ACC16(0), DSV4_ACC16(16), DSV4_ACC16(32), DSV4_ACC16(48))
}

// Four such products along 64 inputs, as one group; `b` is where the swizzled tile lies.
template <int N>
__device__ __forceinline__ void multiply_line(float (&d)[64], const uint32_t (&a)[16], uint32_t b) {
    const uint64_t tile = wgmma_operand(b);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) multiply_add<N>(d, a + 4 * step, tile + 2 * step);
    wgmma_commit();
}

// For kGrain * parts tokens, of which there are more than kLeast and at most kMost; halves that range until one
// width is left.
template <int kGrain, int kLeast = 0, int kMost = 128>
__device__ __forceinline__ void multiply_parts(int parts, float (&d)[64], const uint32_t (&a)[16], uint32_t b) {
    if constexpr (kMost - kLeast == kGrain) {
        multiply_line<kMost>(d, a, b);
    } else {
        constexpr int kMiddle = kLeast + (kMost - kLeast) / kGrain / 2 * kGrain;
        if (parts * kGrain > kMiddle) return multiply_parts<kGrain, kMiddle, kMost>(parts, d, a, b);
        multiply_parts<kGrain, kLeast, kMiddle>(parts, d, a, b);
    }
}

#endif

}  // namespace dsv4::gemm
