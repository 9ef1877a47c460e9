// The kernel for any sizes and fp32: 8 channels a lane, so that 16 lanes are one block of 128. Each lane works
// out one angle and lends it to the others.
#include "common/vectors.cuh"
#include "inv_rope_quant/inv_rope_quant.h"
#include "op_table.h"

namespace dsv4::inv_rope_quant {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads) kernel(Params p) {
    const int lane = threadIdx.x % 32;
    const int parts = (p.row + kPart - 1) / kPart;
    const int warp = blockIdx.x * (kThreads / 32) + threadIdx.x / 32;
    const int token = warp / parts, begin = (warp - token * parts) * kPart;
    if (token >= p.tokens) return;
    const int64_t row = int64_t(token) * p.row;
    float x[kChunks][8] = {};
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
        const int at = begin + i * kChunk + lane * 8;
        if (at < p.row) load_once(static_cast<const T*>(p.x) + row + at, x[i]);
    }
    float2 angle = {1, 0};
    if (lane < p.pairs) angle = rope_angle(p.positions[token], p.inv_freq[lane]);
    angle.y = -angle.y;  // the way back
    const int tail = p.head_dim - 2 * p.pairs;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
        const int at = begin + i * kChunk + lane * 8;
        const int channel = at % p.head_dim;
        rotate_channels<T>(x[i], channel, tail, borrow_angles<8>(angle, channel, tail));
        const uint8_t scale = act8_scale(largest<kBlock / 8>(x[i]));
        if (at >= p.row) continue;
        store_e4m3(p.out + row + at, x[i], e8m0_inverse(scale));
        if (lane % 16 == 0) p.scale[(row + at) / kBlock] = scale;
    }
}

Params params(const Call& call) {
    using namespace table::inv_rope_quant;
    const Dsv4Tensor &x = call.in(in::x), &inv_freq = call.in(in::inv_freq);
    require_dense(x, "x");
    require_dense(inv_freq, "inv_freq");
    require_dense(call.in(in::positions), "positions");
    require_dense(call.out(out::out), "out");
    require_dense(call.out(out::scale), "scale");
    const int heads = x.shape[1], head_dim = x.shape[2], pairs = inv_freq.shape[0];
    DSV4_REQUIRE(head_dim % 8 == 0 && heads * head_dim % kBlock == 0,
                 "%d heads of %d channels; expected a multiple of 8 channels, and of %d in all", heads, head_dim,
                 kBlock);
    DSV4_REQUIRE(pairs <= 32 && pairs % 4 == 0 && 2 * pairs <= head_dim,
                 "inv_freq has %d pairs; expected a multiple of 4, at most 32 and at most half a head", pairs);
    DSV4_REQUIRE(aligned(x.data, 16) && aligned(call.out(out::out).data, 8), "x and out must be 16-byte aligned");
    return {x.data, data<const float>(inv_freq), data<const int32_t>(call.in(in::positions)),
            data<uint8_t>(call.out(out::out)), data<uint8_t>(call.out(out::scale)),
            static_cast<int>(x.shape[0]), heads * head_dim, head_dim, pairs};
}

void launch(const Call& call, void*, cudaStream_t stream) {
    const Params p = params(call);
    const int x_dtype = call.in(table::inv_rope_quant::in::x).dtype;
    if (p.tokens == 0 || p.row == 0) return;
    if (paired_fits(p, x_dtype)) return paired(p, stream);
    const auto chosen = x_dtype == DSV4_F32 ? kernel<float> : kernel<bf16>;
    const int64_t warps = int64_t(p.tokens) * ceil_div(p.row, kPart);
    chosen<<<ceil_div(warps, kThreads / 32), kThreads, 0, stream>>>(p);
    check_launch("inv_rope_quant");
}

const Registration registration("inv_rope_quant", no_workspace, launch);

}  // namespace
}  // namespace dsv4::inv_rope_quant
