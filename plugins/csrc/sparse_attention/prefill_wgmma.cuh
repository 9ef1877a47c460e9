// Hopper's asynchronous matrix products and barriers, as the prefill kernel uses them.
//
// Tiles lie in shared memory as blocks of 64 bf16 channels: rows of 128 bytes whose 16-byte chunks are
// exchanged by the 128-byte swizzle (chunk index xor row % 8), eight rows of it in 1,024 bytes.
#pragma once

#include <limits.h>
#include <stdint.h>

namespace dsv4::sparse_attention {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// mbarriers

__device__ __forceinline__ void barrier_init(uint64_t* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// What was initialised is seen by every thread, also through the asynchronous proxy.
__device__ __forceinline__ void barrier_init_done() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint64_t* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Returns once the phase of this parity is complete.
__device__ __forceinline__ void barrier_wait(uint64_t* barrier, int parity) {
    const uint32_t address = shared_address(barrier);
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}\n" ::"r"(address), "r"(parity) : "memory");
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

// Orders this thread's ordinary writes to shared memory before later reads by the tensor cores.
__device__ __forceinline__ void fence_async_proxy() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

template <int Registers>
__device__ __forceinline__ void more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

// Copies

__device__ __forceinline__ void copy_chunk_async(uint32_t to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void wait_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ __forceinline__ void store_chunk(uint32_t to, uint4 x) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                 : "memory");
}
__device__ __forceinline__ void store_word(uint32_t to, uint32_t x) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}

// Matrix products

// Describes an operand that starts at `address` in 128-byte swizzled blocks. Groups of eight rows (of
// eight keys where channels run along the operand's M or N) are 1,024 bytes apart; `block_bytes` is the
// step from 64 channels to the next 64, which matters where channels run along M or N only.
__device__ __forceinline__ uint64_t operand(uint32_t address, uint32_t block_bytes) {
    constexpr uint64_t swizzle_128 = uint64_t(1) << 62;
    return swizzle_128 | uint64_t(1024 >> 4) << 32 | uint64_t(block_bytes >> 4) << 16 | (address & 0x3FFFF) >> 4;
}

__device__ __forceinline__ void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Returns when at most `Pending` of the latest groups are unfinished.
template <int Pending>
__device__ __forceinline__ void mma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// scores [64, 32] (+)= a [64, 16] b [32, 16]^T. Thread t of the warpgroup holds rows 16 (t / 32) + t % 32 / 4
// (elements 4j, 4j + 1) and eight below (4j + 2, 4j + 3), columns 8j + 2 (t % 4) and the next.
template <bool Accumulate>
__device__ __forceinline__ void mma_scores(float (&s)[16], uint64_t a, uint64_t b) {
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
        "}, %16, %17, accumulate, 1, 1, 0, 0;\n"
        "}\n"
        :
          "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]), "+f"(s[4]), "+f"(s[5]), "+f"(s[6]), "+f"(s[7]),
          "+f"(s[8]), "+f"(s[9]), "+f"(s[10]), "+f"(s[11]), "+f"(s[12]), "+f"(s[13]), "+f"(s[14]), "+f"(s[15])
        : "l"(a), "l"(b), "n"(int(Accumulate)));
}

// out [64, 128] += a [64, 16] b [16, 128]; b has its channels along its rows. Elements as in mma_scores, from
// o[First] on.
template <int First>
__device__ __forceinline__ void mma_values(float (&o)[128], uint64_t a, uint64_t b) {
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, %64, %65, accumulate, 1, 1, 0, 1;\n"
        "}\n"
        :
          "+f"(o[First + 0]), "+f"(o[First + 1]), "+f"(o[First + 2]), "+f"(o[First + 3]), "+f"(o[First + 4]), "+f"(o[First + 5]), "+f"(o[First + 6]), "+f"(o[First + 7]),
          "+f"(o[First + 8]), "+f"(o[First + 9]), "+f"(o[First + 10]), "+f"(o[First + 11]), "+f"(o[First + 12]), "+f"(o[First + 13]), "+f"(o[First + 14]), "+f"(o[First + 15]),
          "+f"(o[First + 16]), "+f"(o[First + 17]), "+f"(o[First + 18]), "+f"(o[First + 19]), "+f"(o[First + 20]), "+f"(o[First + 21]), "+f"(o[First + 22]), "+f"(o[First + 23]),
          "+f"(o[First + 24]), "+f"(o[First + 25]), "+f"(o[First + 26]), "+f"(o[First + 27]), "+f"(o[First + 28]), "+f"(o[First + 29]), "+f"(o[First + 30]), "+f"(o[First + 31]),
          "+f"(o[First + 32]), "+f"(o[First + 33]), "+f"(o[First + 34]), "+f"(o[First + 35]), "+f"(o[First + 36]), "+f"(o[First + 37]), "+f"(o[First + 38]), "+f"(o[First + 39]),
          "+f"(o[First + 40]), "+f"(o[First + 41]), "+f"(o[First + 42]), "+f"(o[First + 43]), "+f"(o[First + 44]), "+f"(o[First + 45]), "+f"(o[First + 46]), "+f"(o[First + 47]),
          "+f"(o[First + 48]), "+f"(o[First + 49]), "+f"(o[First + 50]), "+f"(o[First + 51]), "+f"(o[First + 52]), "+f"(o[First + 53]), "+f"(o[First + 54]), "+f"(o[First + 55]),
          "+f"(o[First + 56]), "+f"(o[First + 57]), "+f"(o[First + 58]), "+f"(o[First + 59]), "+f"(o[First + 60]), "+f"(o[First + 61]), "+f"(o[First + 62]), "+f"(o[First + 63])
        : "l"(a), "l"(b));
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace dsv4::sparse_attention
