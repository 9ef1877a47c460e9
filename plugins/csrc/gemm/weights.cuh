// Weights on their way from memory to the tensor cores of mma.m16n8k16: what one lane holds of one step.
//
// A step is 16 weight rows (the A operand) by 128 of the depth. A dot product does not care about the order
// of its terms, so each lane takes 16 bytes of a row at a time as they lie in memory, and both operands
// follow the order in which those bytes decode. The step's depth falls into 16 octets of 8 inputs; each
// octet is what one of the four lanes of a row gives to one chunk, two mma deep.
#pragma once

#include <cuda_fp16.h>

#include <type_traits>

#include "common/numbers.cuh"
#include "common/shared_memory.cuh"
#include "gemm/problem.h"

namespace dsv4::gemm {

constexpr int kStepDepth = 128;
constexpr int kChunks = 4;

// Copies that run by themselves: registers could hold as many loads in flight, but a warp has six counters to
// wait for them by, and the compiler gives the loads of all steps the same one.
// Shared memory goes by its 32-bit addresses here: a step is short enough for address arithmetic to show.
__device__ __forceinline__ void copy_16(uint32_t to, const void* from) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ uint4 read_16(uint32_t from) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(from));
    return v;
}

__device__ __forceinline__ uint8_t read_1(uint32_t from) {
    uint16_t v;
    asm volatile("ld.shared.u8 %0, [%1];" : "=h"(v) : "r"(from));
    return static_cast<uint8_t>(v);
}

// All but the newest `Newest` groups of copies have arrived, for the whole warp.
template <int Newest>
__device__ __forceinline__ void await_copies() {
    wait_copies<Newest>();
    __syncwarp();
}

__device__ __forceinline__ uint32_t word(const uint4& v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// Where one lane is in its two rows, g and g + 8 of a 16-row tile (g = lane / 4): at a step yet to be loaded.
struct RowPair {
    const uint8_t* weight[2];   // the lane's first byte
    const uint8_t* scale[2];    // the lane's scale byte

    __device__ void load_scales(uint8_t (&to)[2]) const {
#pragma unroll
        for (int r = 0; r < 2; ++r) to[r] = __ldg(scale[r]);
    }
    __device__ void advance(int64_t weight_bytes, int scale_bytes) {
#pragma unroll
        for (int r = 0; r < 2; ++r) weight[r] += weight_bytes, scale[r] += scale_bytes;
    }
};

// Two codes in the low half of `codes` as bf16 or fp16; both hold every e4m3 value.
template <class T>
__device__ __forceinline__ uint32_t e4m3_pair(uint32_t codes) {
    const __half2 pair(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes), __NV_E4M3));
    if constexpr (std::is_same_v<T, __half>) {
        return reinterpret_cast<const uint32_t&>(pair);
    } else {
        const __nv_bfloat162 out = __float22bfloat162_rn(__half22float2(pair));
        return reinterpret_cast<const uint32_t&>(out);
    }
}

__device__ __forceinline__ uint32_t multiply(uint32_t a, uint32_t b) {
    const __nv_bfloat162 out =
        __hmul2(reinterpret_cast<const __nv_bfloat162&>(a), reinterpret_cast<const __nv_bfloat162&>(b));
    return reinterpret_cast<const uint32_t&>(out);
}

template <Weight F, class T>
struct Fragment;

// Members of every Fragment:
//   kScaled      the sum over a step has yet to be multiplied by scale(0) (row g) and scale(1) (row g + 8)
//   kInterleaved the inputs of an octet go in the order 0 4 1 5 2 6 3 7
//   chunk_of, lane_of   where octet q of a step belongs
//   kBytes, kScales     of a row in a step
//   kAhead       steps under way per warp
//   kStage       bytes of shared memory that a step takes
//   copy         starts the copies of a step
//   read         what this lane needs of the copies; but for e4m3 scales, few bytes that stay cached
//   chunk        A operands of a chunk's two mma: lower half of row g, of row g + 8, upper half of g, of g + 8
//   extreme      whether chunk has to be chunk<true>, which is right for every scale

template <class T>
struct Fragment<Weight::kBf16, T> {
    static constexpr bool kScaled = false, kInterleaved = false;
    static constexpr int kBytes = 256, kScales = 0, kAhead = 2, kStage = 8 * 512;
    uint4 row[2][4];

    static __device__ int chunk_of(int q) { return q / 4; }
    static __device__ int lane_of(int q) { return q % 4; }

    static __device__ void copy(const RowPair& rows, uint32_t stage, int lane) {
#pragma unroll
        for (int i = 0; i < 8; ++i) copy_16(stage + (i * 32 + lane) * 16, rows.weight[i / 4] + i % 4 * 64);
    }
    __device__ void read(uint32_t stage, int lane) {
#pragma unroll
        for (int i = 0; i < 8; ++i) row[i / 4][i % 4] = read_16(stage + (i * 32 + lane) * 16);
    }
    __device__ bool extreme() const { return false; }
    template <bool Extreme>
    __device__ void chunk(int c, uint32_t (&a)[2][4]) const {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            a[0][r] = row[r][c].x, a[0][r + 2] = row[r][c].y;
            a[1][r] = row[r][c].z, a[1][r + 2] = row[r][c].w;
        }
    }
    __device__ float scale(int) const { return 1; }
};

template <class T>
struct Fragment<Weight::kE4M3, T> {
    static constexpr bool kScaled = true, kInterleaved = false;
    static constexpr int kBytes = 128, kScales = 1, kAhead = 3, kStage = 4 * 512;
    uint4 row[2][2];
    uint8_t scales[2];

    static __device__ int chunk_of(int q) { return q / 8 * 2 + q % 2; }
    static __device__ int lane_of(int q) { return q % 8 / 2; }

    static __device__ void copy(const RowPair& rows, uint32_t stage, int lane) {
#pragma unroll
        for (int i = 0; i < 4; ++i) copy_16(stage + (i * 32 + lane) * 16, rows.weight[i / 2] + i % 2 * 64);
    }
    __device__ void read(uint32_t stage, int lane) {
#pragma unroll
        for (int i = 0; i < 4; ++i) row[i / 2][i % 2] = read_16(stage + (i * 32 + lane) * 16);
    }
    __device__ bool extreme() const { return false; }
    template <bool Extreme>
    __device__ void chunk(int c, uint32_t (&a)[2][4]) const {
#pragma unroll
        for (int m = 0; m < 2; ++m)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const uint32_t codes = word(row[r][c / 2], c % 2 * 2 + m);
                a[m][r] = e4m3_pair<T>(codes & 0xFFFF);
                a[m][r + 2] = e4m3_pair<T>(codes >> 16);
            }
    }
    __device__ float scale(int r) const { return e8m0_decode(scales[r]); }
};

// A lane's 32 inputs of a step are one scale group. A code's bits, put where bf16 has its sign, low exponent
// and high mantissa bits, are its value times 2^-126; one multiplication by 2^(byte - 1) makes up for that
// and scales. Bytes above 128 take a second one.
template <class T>
struct Fragment<Weight::kE2M1, T> {
    static constexpr bool kScaled = false, kInterleaved = true;
    static constexpr int kBytes = 64, kScales = 4, kAhead = 5, kStage = 2 * 512 + 64;
    uint4 row[2];
    uint8_t scales[2];

    static __device__ int chunk_of(int q) { return q % 4; }
    static __device__ int lane_of(int q) { return q / 4; }

    static __device__ void copy(const RowPair& rows, uint32_t stage, int lane) {
#pragma unroll
        for (int i = 0; i < 2; ++i) copy_16(stage + (i * 32 + lane) * 16, rows.weight[i]);
        // the four scales of a row at once, by one of its lanes
        const int r = lane % 4;
        if (r < 2) copy_async<4>(stage + 1024 + (r * 8 + lane / 4) * 4, rows.scale[0]);
    }
    __device__ void read(uint32_t stage, int lane) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            row[r] = read_16(stage + (r * 32 + lane) * 16);
            scales[r] = read_1(stage + 1024 + r * 32 + lane);
        }
    }
    __device__ bool extreme() const {
        return __any_sync(0xFFFFFFFFu, scales[0] > 128 || scales[1] > 128);
    }
    template <bool Extreme>
    __device__ void chunk(int c, uint32_t (&a)[2][4]) const {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const uint32_t codes = word(row[r], c);
            const uint32_t first = min(scales[r] + 126, 254) * kTwice;
            a[0][r] = multiply(even(codes), first);
            a[0][r + 2] = multiply(odd(codes), first);
            a[1][r] = multiply(even(codes >> 8), first);
            a[1][r + 2] = multiply(odd(codes >> 8), first);
            if constexpr (Extreme) {
                const uint32_t second = scales[r] == 255 ? 0x7FC07FC0 : max(scales[r] - 1, 127) * kTwice;
#pragma unroll
                for (int i = 0; i < 4; ++i) a[i / 2][r + i % 2 * 2] = multiply(a[i / 2][r + i % 2 * 2], second);
            }
        }
    }
    __device__ float scale(int) const { return 1; }

  private:
    static constexpr uint32_t kTwice = 0x00800080;  // an exponent to both halves

    // The lowest code of each half: one product has its sign and its other bits where they belong, among copies.
    static __device__ uint32_t even(uint32_t codes) { return (codes & 0x000F000F) * 0x1040 & 0x81C081C0; }
    static __device__ uint32_t odd(uint32_t codes) { return (codes & 0x00F000F0) * 0x104 & 0x81C081C0; }
};

}  // namespace dsv4::gemm
