// Hopper's products of 64 x 16 from registers with 16 x 64 from shared memory, sums in fp32.
//
// Warp w of the warp group has rows 16w .. 16w + 15, in the layouts of common/mma.cuh; its sums are those of eight
// neighbouring tiles of eight columns. The right operand lies column by column, 64 values of k in 128 bytes.
#pragma once

#include "common/wgmma.cuh"

namespace dsv4::index_topk {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define DSV4_WGMMA(types)                                                                                       \
    asm volatile(                                                                                               \
        "{.reg .pred p; setp.ne.b32 p, %37, 0;\n"                                                               \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." types " "                                                 \
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                               \
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, p, 1, 1, 0;}" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),       \
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),            \
          "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),            \
          "+f"(d[30]), "+f"(d[31])                                                                              \
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(columns), "r"(int(add)))

// d = a * b, or with `add` d += a * b; in flight until waited for.
template <bool kHalf>
__device__ __forceinline__ void wgmma_64x64(float (&d)[32], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                            uint64_t columns, bool add) {
    if constexpr (kHalf) {
        DSV4_WGMMA("f16.f16");
    } else {
        DSV4_WGMMA("bf16.bf16");
    }
}

#undef DSV4_WGMMA

#endif

}  // namespace dsv4::index_topk
