// What x is before `wide` multiplies it: rounded by act8 or decoded, as bf16, in the decoder's order of inputs.
//
// One warp does 512 inputs of a row; a lane reads 16 neighbours, which are the ones that thread q = lane % 4 of
// the decoder takes of each 64.
#include "common/numbers.cuh"
#include "common/pack.cuh"
#include "common/reduce.cuh"
#include "gemm/wide.h"
#include "gemm/wide_decode.cuh"

namespace dsv4::gemm {
namespace {

constexpr int kThreads = 256;
constexpr int kWarpInputs = 512;

__device__ __forceinline__ void load16(float (&values)[16], const WideInputs& p, int64_t at) {
    if (p.act == Act::kCodes) {
        const auto codes = load_pack<16>(static_cast<const uint8_t*>(p.x) + at);
        const float scale = e8m0_decode(p.x_scale[at / 128]);  // rows are whole blocks apart
#pragma unroll
        for (int i = 0; i < 16; ++i) values[i] = e4m3_decode(codes.at[i]) * scale;
    } else {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const auto part = load_pack<8>(static_cast<const bf16*>(p.x) + at + 8 * half);
#pragma unroll
            for (int i = 0; i < 8; ++i) values[8 * half + i] = to_float(part.at[i]);
        }
    }
}

// Eight lanes have a block of 128.
__device__ __forceinline__ void round_act8(float (&values)[16]) {
    float most = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) most = max_nan(most, fabsf(values[i]));
#pragma unroll
    for (int offset = 4; offset > 0; offset /= 2) most = max_nan(most, __shfl_xor_sync(kFullMask, most, offset));
    const uint8_t byte = act8_scale(most);
    const float scale = e8m0_decode(byte), inverse = e8m0_inverse(byte);
#pragma unroll
    for (int i = 0; i < 16; ++i) values[i] = e4m3_decode(e4m3_encode(values[i] * inverse)) * scale;
}

// Of this lane's 16 inputs, the two in word `word` (0 .. 7) of what it contributes, and that word's place in 64.
template <Weight kFormat>
__device__ __forceinline__ void put(uint32_t* block, const float (&values)[16], int q) {
#pragma unroll
    for (int word = 0; word < 8; ++word) {
        // word = 2 * step + pair: columns 2q, 2q + 1 of the step, then 2q + 8, 2q + 9
        const int step = word / 2, pair = word % 2;
        const bool plain = kFormat == Weight::kBf16;
        const int first = plain ? 2 * word : input_of<kFormat>(step, 2 * pair);
        const int second = plain ? 2 * word + 1 : input_of<kFormat>(step, 2 * pair + 1);
        const __nv_bfloat162 both = __floats2bfloat162_rn(values[first], values[second]);
        block[plain ? 8 * q + word : 8 * step + 4 * pair + q] = reinterpret_cast<const uint32_t&>(both);
    }
}

template <Weight kFormat>
__global__ void __launch_bounds__(kThreads) kernel(WideInputs p) {
    constexpr int kPadded = 36;  // words of 64 inputs, so that banks differ
    __shared__ alignas(16) uint32_t staged[kThreads / 32][8 * kPadded];
    const int width = p.sections * p.depth, parts = (width + kWarpInputs - 1) / kWarpInputs;
    const int64_t part = blockIdx.x * int64_t(kThreads / 32) + threadIdx.x / 32;
    const int64_t row = part / parts;
    const int lane = threadIdx.x % 32, input = part % parts * kWarpInputs + lane * 16;
    if (row >= p.rows) return;
    const bool any = input < width;
    float values[16] = {};
    if (any) load16(values, p, row * p.row_stride + input / p.depth * p.section_stride + input % p.depth);
    if (p.act == Act::kAct8) round_act8(values);
    uint32_t* block = staged[threadIdx.x / 32] + lane / 4 * kPadded;
    put<kFormat>(block, values, lane % 4);
    __syncwarp();
    if (!any) return;
    bf16* out = p.out + row * width + input;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        *reinterpret_cast<uint4*>(out + 8 * half) = *reinterpret_cast<uint4*>(block + 8 * (lane % 4) + 4 * half);
    }
}

}  // namespace

void wide_inputs(const WideInputs& p, Weight format, cudaStream_t stream) {
    const int64_t parts = int64_t(p.rows) * ceil_div(int64_t(p.sections) * p.depth, kWarpInputs);
    const int blocks = ceil_div(parts, kThreads / 32);
    if (format == Weight::kBf16) kernel<Weight::kBf16><<<blocks, kThreads, 0, stream>>>(p);
    else if (format == Weight::kE4M3) kernel<Weight::kE4M3><<<blocks, kThreads, 0, stream>>>(p);
    else kernel<Weight::kE2M1><<<blocks, kThreads, 0, stream>>>(p);
    check_launch("gemm.wide_inputs");
}

}  // namespace dsv4::gemm
