// From pooled channels, four a lane, to an entry: norm, rotation, Hadamard transform, cache format.
#pragma once

#include "compress/rows.cuh"

namespace dsv4::compress {

__device__ __forceinline__ void round_act(const Params& p, float (&x)[4]) {
    if (p.bf16_act) round_all<bf16>(x);
}

__device__ __forceinline__ float squares(const float (&x)[4]) {
    return x[0] * x[0] + x[1] * x[1] + x[2] * x[2] + x[3] * x[3];
}

// What an entry's lane can know before its terms have arrived.
struct Channels {
    int first;          // of the lane's four
    int tail;           // the first rotated one of the entry
    float weight[4];    // of the norm
    float2 angles[2];
};

__device__ __forceinline__ Channels channels_of(const Params& p, int first, int position) {
    Channels out = {first, p.width - 2 * p.pairs, {}, {}};
    const uint2 weight = __ldg(reinterpret_cast<const uint2*>(p.norm_weight + first));
    out.weight[0] = bf16_low(weight.x), out.weight[1] = bf16_high(weight.x);
    out.weight[2] = bf16_low(weight.y), out.weight[3] = bf16_high(weight.y);
    const int pair = (first - out.tail) / 2;
    if (first < out.tail) return out;
    for (int i = 0; i < 2; ++i) out.angles[i] = rope_angle(position / p.ratio * p.ratio, p.inv_freq[pair + i]);
    return out;
}

// Sylvester order over a warp's 128 channels, normalised.
__device__ __forceinline__ void hadamard(float (&x)[4], int lane) {
    const float a = x[0] + x[1], b = x[0] - x[1], c = x[2] + x[3], d = x[2] - x[3];
    x[0] = a + c, x[1] = b + d, x[2] = a - c, x[3] = b - d;
#pragma unroll
    for (int bit = 1; bit < 32; bit *= 2) {
        const float sign = lane & bit ? -1.0f : 1.0f;
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = fmaf(sign, x[i], __shfl_xor_sync(kFullMask, x[i], bit));
    }
    constexpr float kNorm = 0.08838834764831845f;  // 128^-0.5
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = __fmul_rn(x[i], kNorm);
}

// `mean` is that of the entry's squares. All lanes of a warp must come here; without a place nothing is
// written.
__device__ __forceinline__ void finish(const Params& p, const EntryPlace& to, const Channels& own, float mean,
                                       float (&x)[4]) {
    const float factor = rsqrtf(mean + p.eps);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = __fmul_rn(own.weight[i], __fmul_rn(x[i], factor));
    round_act(p, x);
    if (own.first >= own.tail) {
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const float2 turned = rotate({x[i], x[i + 1]}, own.angles[i / 2]);
            x[i] = turned.x;
            x[i + 1] = turned.y;
        }
        round_act(p, x);
    }
    if (!p.hadamard) return put_kv(p.format, to, own.first, own.tail, x);
    hadamard(x, threadIdx.x % 32);
    round_act(p, x);
    put_key(p.format, to, threadIdx.x % 32, x);
}

}  // namespace dsv4::compress
