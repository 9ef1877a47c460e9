// Hopper's asynchronous parts as the `wide` kernels use them: 16-byte copies, mbarriers and warpgroup products.
#pragma once

#include <stdint.h>

namespace dsv4::gemm {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Copies 16 bytes, or clears them where there is nothing to copy; `from` may then be any address.
__device__ __forceinline__ void copy16(uint32_t to, const void* from, bool any) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(any ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void copy4(uint32_t to, const void* from, bool any) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(any ? 4 : 0) : "memory");
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until this thread has at most Pending groups of copies under way.
template <int Pending>
__device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// Orders what this thread wrote to shared memory before later reads by the tensor cores.
__device__ __forceinline__ void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Returns once the phase of this parity is complete; a fresh barrier counts as past its phase of parity 1.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "AGAIN_%=:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra AGAIN_%=;\n"
        "}\n" ::"r"(barrier), "r"(parity) : "memory");
}

// Of this block in its cluster.
__device__ __forceinline__ int cluster_rank() {
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// All threads of all blocks of the cluster; what they wrote to shared memory before is seen after it.
__device__ __forceinline__ void sync_cluster() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
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

template <int Registers>
__device__ __forceinline__ void more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

template <int Registers>
__device__ __forceinline__ void fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

// Before products, when registers that they use have been written.
__device__ __forceinline__ void products_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most Pending groups of this warpgroup's products are under way.
template <int Pending>
__device__ __forceinline__ void products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// Rows of 128 bytes, K innermost, their 16-byte chunks exchanged by the 128-byte swizzle (chunk index xor
// row % 8); the tile starts at a multiple of 1,024 bytes. 32 bytes along K are +2 in the low word.
__device__ __forceinline__ uint64_t swizzled_tile(uint32_t address) {
    constexpr uint64_t kSwizzle128 = uint64_t(1) << 62;
    constexpr uint64_t kEightRows = uint64_t(1024 >> 4) << 32;  // bytes from 8 rows to the next 8
    constexpr uint64_t kUnused = uint64_t(1) << 16;             // the leading offset means nothing here
    return kSwizzle128 | kEightRows | kUnused | ((address & 0x3FFFF) >> 4);
}

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
    const uint64_t tile = swizzled_tile(b);
    products_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) multiply_add<N>(d, a + 4 * step, tile + 2 * step);
    products_commit();
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

// The compiler moves no use of these accumulators across this.
__device__ __forceinline__ void hold(float (&d)[64]) {
#pragma unroll
    for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

#endif

}  // namespace dsv4::gemm
