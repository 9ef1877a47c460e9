// A block is 32 heads of one token, eight lanes a head: 16 channels a lane, 8 in each half of the head.
//
// Channel bits 0-2 and 6 of the transform are butterflies inside a lane, bits 3-5 between the eight lanes.
// The rotated channels lie in the upper half, so every lane rotates as many pairs.
#include "common/vectors.cuh"
#include "indexer_q/indexer_q.h"
#include "indexer_q/store.cuh"
#include "op_table.h"

namespace dsv4::indexer_q {
namespace {

constexpr int kThreads = 256;
constexpr int kLanes = 8;                       // of one head
constexpr int kHeads = kThreads / kLanes;       // of a block
constexpr float kNorm = 0.08838834764831845f;   // 128^-0.5

// Eight channels from memory as fp32.
__device__ __forceinline__ void load(const float* from, float* x) {
    const float4 a = __ldg(reinterpret_cast<const float4*>(from));
    const float4 b = __ldg(reinterpret_cast<const float4*>(from) + 1);
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}

__device__ __forceinline__ void load(const bf16* from, float* x) {
    const uint4 words = __ldg(reinterpret_cast<const uint4*>(from));
    const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        x[2 * i] = bf16_low(word[i]);
        x[2 * i + 1] = bf16_high(word[i]);
    }
}

// A pair after a trip through T; together, because the packed conversion is four times as fast.
template <class T>
__device__ __forceinline__ void round_pair(float& a, float& b) {
    if constexpr (sizeof(T) == 2) {
        const uint32_t pair = bf16_pair(a, b);
        a = bf16_low(pair);
        b = bf16_high(pair);
    }
}

// The transform of a head's 128 channels: x[8 * half + i] is channel 64 * half + 8 * lane + i.
__device__ __forceinline__ void hadamard(float (&x)[16], int lane) {
#pragma unroll
    for (int bit = 1; bit < 16; bit *= 2) {
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            if (i & bit) continue;
            const float a = x[i], b = x[i + bit];
            x[i] = a + b;
            x[i + bit] = a - b;
        }
    }
#pragma unroll
    for (int bit = 1; bit < kLanes; bit *= 2) {
        const float sign = lane & bit ? -1.0f : 1.0f;
#pragma unroll
        for (int i = 0; i < 16; ++i) x[i] = fmaf(sign, x[i], __shfl_xor_sync(kFullMask, x[i], bit));
    }
}

template <class T, Format kFormat>
__global__ void __launch_bounds__(kThreads, 5) kernel(Params p) {
    __shared__ float2 angles[kMaxPairs];
    const int token = blockIdx.x, lane = threadIdx.x % kLanes;
    // heads beyond the last repeat it, so that whole warps take part in shuffles
    const int head = blockIdx.y * kHeads + threadIdx.x / kLanes;
    const int64_t row = int64_t(token) * p.num_heads + min(head, p.num_heads - 1);
    const T* q = static_cast<const T*>(p.q) + row * kHeadDim + 8 * lane;
    float x[16];
    load(q, x);
    load(q + 64, x + 8);
    const float weight = to_float(__ldg(static_cast<const T*>(p.weights) + row));   // long before it is used

    const int first_pair = kMaxPairs - p.pairs;  // pairs below it are not rotated
    if (threadIdx.x < p.pairs) {
        angles[first_pair + threadIdx.x] = rope_angle(p.positions[token], p.inv_freq[threadIdx.x]);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 16; i += 2) {
        const int pair = 32 * (i / 8) + 4 * lane + i % 8 / 2;
        if (pair < first_pair) continue;
        const float2 turned = rotate({x[i], x[i + 1]}, angles[pair]);
        x[i] = turned.x;
        x[i + 1] = turned.y;
        round_pair<T>(x[i], x[i + 1]);
    }
    hadamard(x, lane);
#pragma unroll
    for (int i = 0; i < 16; i += 2) {
        x[i] = __fmul_rn(x[i], kNorm);
        x[i + 1] = __fmul_rn(x[i + 1], kNorm);
        round_pair<T>(x[i], x[i + 1]);
    }
    const bool valid = head < p.num_heads;
    const float own_scale = store<T, kFormat>(p, row, lane, x, valid);
    if (valid && lane == 0) {
        p.out_weights[row] = __fmul_rn(rounded<T>(__fmul_rn(weight, p.scale)), own_scale);
    }
}

template <class T>
void start(const Params& p, const Call& call, cudaStream_t stream) {
    using namespace table::indexer_q;
    const dim3 grid(p.tokens, ceil_div(p.num_heads, kHeads));
    if (call.is(attr::format, "fp4")) {
        kernel<T, Format::kFp4><<<grid, kThreads, 0, stream>>>(p);
    } else if (call.is(attr::format, "fp8")) {
        kernel<T, Format::kFp8><<<grid, kThreads, 0, stream>>>(p);
    } else if (call.is(attr::format, "bf16")) {
        kernel<T, Format::kBf16><<<grid, kThreads, 0, stream>>>(p);
    } else {
        kernel<T, Format::kFp32><<<grid, kThreads, 0, stream>>>(p);
    }
}

Params params(const Call& call) {
    using namespace table::indexer_q;
    const Dsv4Tensor &q = call.in(in::q), &weights = call.in(in::weights);
    require_dense(q, "q");
    require_dense(weights, "weights");
    require_dense(call.in(in::inv_freq), "inv_freq");
    require_dense(call.in(in::positions), "positions");
    require_dense(call.out(out::q), "q of the outputs");
    require_dense(call.out(out::weights), "weights of the outputs");
    const int head_dim = call.integer(attr::head_dim), heads = call.integer(attr::num_heads);
    const int pairs = call.in(in::inv_freq).shape[0];
    DSV4_REQUIRE(head_dim == kHeadDim, "head_dim is %d; expected %d", head_dim, kHeadDim);
    DSV4_REQUIRE(pairs <= kMaxPairs, "inv_freq has %d pairs; expected at most %d", pairs, kMaxPairs);
    DSV4_REQUIRE(q.shape[1] == int64_t(heads) * head_dim, "a row of q has %lld channels; expected %d",
                 static_cast<long long>(q.shape[1]), heads * head_dim);
    Params p{};
    p.q = q.data;
    p.weights = weights.data;
    p.inv_freq = data<const float>(call.in(in::inv_freq));
    p.positions = data<const int32_t>(call.in(in::positions));
    p.out = call.out(out::q).data;
    if (call.is(attr::format, "fp4")) {
        require_dense(call.out(out::q_scale), "q_scale");
        p.out_scale = data<uint8_t>(call.out(out::q_scale));
    }
    p.out_weights = data<float>(call.out(out::weights));
    p.tokens = q.shape[0];
    p.num_heads = heads;
    p.pairs = pairs;
    p.scale = call.real(attr::scale);
    return p;
}

void launch(const Call& call, void*, cudaStream_t stream) {
    const Params p = params(call);
    if (p.tokens == 0 || p.num_heads == 0) return;
    if (call.in(table::indexer_q::in::q).dtype == DSV4_F32) {
        start<float>(p, call, stream);
    } else {
        start<bf16>(p, call, stream);
    }
    check_launch("indexer_q");
}

const Registration registration("indexer_q", no_workspace, launch);

}  // namespace
}  // namespace dsv4::indexer_q
