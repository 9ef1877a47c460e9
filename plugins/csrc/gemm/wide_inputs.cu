// What x is before `wide` multiplies it: rounded by act8 or decoded, as bf16, in the decoder's order of inputs.
// One warp does 512 inputs of a row, a lane 16 neighbours.
#include "common/dependent_launch.cuh"
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

// Puts this lane's inputs, thread q's of the decoder, into its block of 64.
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

// Where a lane's inputs are.
struct Place {
    int64_t row;
    int input, width;

    __device__ explicit Place(const WideInputs& p) {
        width = p.sections * p.depth;
        const int parts = (width + kWarpInputs - 1) / kWarpInputs;
        const int64_t part = blockIdx.x * int64_t(kThreads / 32) + threadIdx.x / 32;
        row = part / parts;
        input = part % parts * kWarpInputs + threadIdx.x % 32 * 16;
    }
    __device__ int64_t in_x(const WideInputs& p) const {
        return row * p.row_stride + input / p.depth * p.section_stride + input % p.depth;
    }
};

template <Weight kFormat>
__global__ void __launch_bounds__(kThreads) to_bf16(WideInputs p) {
    constexpr int kPadded = 36;  // words of 64 inputs, so that banks differ
    __shared__ alignas(16) uint32_t staged[kThreads / 32][8 * kPadded];
    allow_next();
    const Place at(p);
    if (at.row >= p.rows) return;
    const int lane = threadIdx.x % 32;
    float values[16] = {};
    if (at.input < at.width) load16(values, p, at.in_x(p));
    if (p.act == Act::kAct8) round_act8(values);
    uint32_t* block = staged[threadIdx.x / 32] + lane / 4 * kPadded;
    put<kFormat>(block, values, lane % 4);
    __syncwarp();
    if (at.input >= at.width) return;
    bf16* out = static_cast<bf16*>(p.out) + at.row * at.width + at.input;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        *reinterpret_cast<uint4*>(out + 8 * half) = *reinterpret_cast<uint4*>(block + 8 * (lane % 4) + 4 * half);
    }
}

int blocks_of(const WideInputs& p) {
    return ceil_div(int64_t(p.rows) * ceil_div(int64_t(p.sections) * p.depth, kWarpInputs), kThreads / 32);
}

}  // namespace

void wide_inputs(const WideInputs& p, Weight format, cudaStream_t stream) {
    if (format == Weight::kBf16) to_bf16<Weight::kBf16><<<blocks_of(p), kThreads, 0, stream>>>(p);
    else if (format == Weight::kE4M3) to_bf16<Weight::kE4M3><<<blocks_of(p), kThreads, 0, stream>>>(p);
    else to_bf16<Weight::kE2M1><<<blocks_of(p), kThreads, 0, stream>>>(p);
    check_launch("gemm.wide_inputs");
}

}  // namespace dsv4::gemm
