// Barriers besides __syncthreads: mbarriers in shared memory, and the hardware's named ones.
#pragma once

#include "common/shared_memory.cuh"

namespace dsv4 {

// An mbarrier goes by its address in shared memory. Its phase ends with as many arrivals, and as many bytes of
// copies as barrier_expect() has named.
__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// What was initialised is seen by every thread of the cluster that meets this one, and by copies.
__device__ __forceinline__ void barrier_init_done() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives, and makes the phase wait for `bytes` that copies bring.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Returns once the phase of this parity is complete; a fresh barrier counts as past its phase of parity 1.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, int parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}\n" ::"r"(barrier), "r"(parity) : "memory");
}

// The same by pointers.
__device__ __forceinline__ void barrier_init(uint64_t* barrier, int arrivals) {
    barrier_init(shared_address(barrier), arrivals);
}
__device__ __forceinline__ void barrier_arrive(uint64_t* barrier) { barrier_arrive(shared_address(barrier)); }
__device__ __forceinline__ void barrier_expect(uint64_t* barrier, int bytes) {
    barrier_expect(shared_address(barrier), bytes);
}
__device__ __forceinline__ void barrier_wait(uint64_t* barrier, int parity) {
    barrier_wait(shared_address(barrier), parity);
}

// Named barriers: 0 is __syncthreads.
template <int Name, int Threads>
__device__ __forceinline__ void sync_threads() {
    asm volatile("bar.sync %0, %1;" ::"n"(Name), "n"(Threads) : "memory");
}

// True if any of the threads says so.
template <int Name, int Threads>
__device__ __forceinline__ bool sync_any(bool mine) {
    int any;
    asm volatile(
        "{\n"
        ".reg .pred in, out;\n"
        "setp.ne.b32 in, %1, 0;\n"
        "bar.red.or.pred out, %2, %3, in;\n"
        "selp.b32 %0, 1, 0, out;\n"
        "}\n" : "=r"(any) : "r"(int(mine)), "n"(Name), "n"(Threads) : "memory");
    return any;
}

}  // namespace dsv4
