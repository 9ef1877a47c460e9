// Hopper's asynchronous matrix products, and stores to shared memory, as the prefill kernel uses them.
#pragma once

#include "common/barrier.cuh"
#include "common/wgmma.cuh"

namespace dsv4::sparse_attention {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ void store_chunk(uint32_t to, uint4 x) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                 : "memory");
}
__device__ __forceinline__ void store_word(uint32_t to, uint32_t x) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
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
