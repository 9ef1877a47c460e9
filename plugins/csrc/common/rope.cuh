// Rotary positions: pair i is the channels (2i, 2i + 1) of the tail, angles in fp32 as the reference has them.
#pragma once

namespace dsv4 {

// cos and sin of position * inv_freq. The product is rounded to fp32 first. It is reduced to a quarter turn
// in fp64, then polynomials are off by at most 1e-7: sincosf has a path for large angles that needs a stack.
__device__ __forceinline__ float2 rope_angle(int position, float inv_freq) {
    const double angle = double(__fmul_rn(float(position), inv_freq));
    const double quarters = rint(angle * 0.63661977236758134);
    const float x = float(fma(quarters, -1.5707963267948966, angle)), z = x * x;
    const float sine = fmaf(fmaf(fmaf(-1.9515295891e-4f, z, 8.3321608736e-3f), z, -1.6666654611e-1f), z * x, x);
    const float high = fmaf(fmaf(2.443315711809948e-5f, z, -1.388731625493765e-3f), z, 4.166664568298827e-2f);
    const float cosine = fmaf(high, z * z, fmaf(-0.5f, z, 1.0f));
    const int turn = static_cast<int>(quarters);
    const float first = turn & 1 ? sine : cosine, second = turn & 1 ? cosine : sine;
    return {(turn + 1) & 2 ? -first : first, turn & 2 ? -second : second};
}

// Rotates one pair by an angle given as (cos, sin); for the way back negate the sine.
__device__ __forceinline__ float2 rotate(float2 pair, float2 angle) {
    return {__fsub_rn(__fmul_rn(pair.x, angle.x), __fmul_rn(pair.y, angle.y)),
            __fadd_rn(__fmul_rn(pair.x, angle.y), __fmul_rn(pair.y, angle.x))};
}

}  // namespace dsv4
