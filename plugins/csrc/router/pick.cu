// Experts and weights of each token from its logits: a block a token where tokens are few, else a warp a token;
// one warp picks.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"
#include "common/reduce.cuh"
#include "router/router.h"

namespace dsv4::router {
namespace {

constexpr int kThreads = 128;
constexpr int kManyTokens = 256;  // above, warps of other tokens keep a multiprocessor busy
constexpr uint32_t kTaken = 0;    // below every key

// Compares like the score; zeros are equal, NaN is least.
__device__ __forceinline__ uint32_t key_of(float score) {
    const uint32_t bits = __float_as_uint(score + 0.0f);
    if (isnan(score)) return kTaken + 1;
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float sqrt_softplus(float x) { return sqrtf(x > 20.0f ? x : log1pf(expf(x))); }

// The expert of this lane, as the `lane`-th best; ties go to the lower expert. Takes the keys apart.
__device__ int best(uint32_t* keys, int experts, int picks) {
    const int lane = threadIdx.x % 32;
    int mine = -1;
    uint32_t key = kTaken;
    int expert = 0;
    auto find = [&] {
        key = kTaken;
        for (int e = lane; e < experts; e += 32) {
            if (keys[e] > key) key = keys[e], expert = e;
        }
    };
    find();
    for (int i = 0; i < picks; ++i) {
        const uint32_t top = __reduce_max_sync(kFullMask, key);
        const int found = __reduce_min_sync(kFullMask, key == top ? expert : kMaxExperts);
        if (lane == i) mine = found;
        if (found % 32 == lane) {
            keys[found] = kTaken;
            find();
        }
    }
    return mine;
}

// The expert that the table gives this lane, -1 where it gives none.
__device__ int looked_up(const Params& p, int64_t token) {
    const int lane = threadIdx.x % 32;
    const int id = p.token_ids[token];
    if (lane >= p.picks || id < 0 || id >= p.vocabulary) return -1;
    const int expert = p.tid2eid[int64_t(id) * p.picks + lane];
    return expert >= 0 && expert < p.experts ? expert : -1;
}

template <int kWarps>  // of a token
__global__ void __launch_bounds__(kThreads) kernel(Params p) {
    constexpr int kWidth = kWarps * 32;
    extern __shared__ float shared[];
    const int slot = threadIdx.x / kWidth, thread = threadIdx.x % kWidth;
    float* scores = shared + slot * 2 * p.experts;
    uint32_t* keys = reinterpret_cast<uint32_t*>(scores + p.experts);
    const int64_t token = int64_t(blockIdx.x) * (kThreads / kWidth) + slot;
    if (p.bias) {  // each thread comes back to the experts it loads here
        for (int e = thread; e < p.experts; e += kWidth) keys[e] = __float_as_uint(p.bias[e]);
    }
    wait_for_previous();
    allow_next();
    if (token >= p.tokens) return;  // a whole warp, and only where no other one has the same token
    for (int e = thread; e < p.experts; e += kWidth) {
        float logit = 0;
#pragma unroll 8
        for (int split = 0; split < p.splits; ++split) {
            logit += p.logits[(int64_t(split) * p.tokens + token) * p.experts + e];
        }
        const float score = sqrt_softplus(logit);
        scores[e] = score;
        if (p.bias) keys[e] = key_of(score + __uint_as_float(keys[e]));
    }
    if constexpr (kWidth == kThreads) {
        __syncthreads();
        if (thread >= 32) return;
    } else {
        __syncwarp();
    }
    const int expert = p.bias ? best(keys, p.experts, p.picks) : looked_up(p, token);
    const float score = expert < 0 ? 0.0f : scores[expert];
    const float total = warp_sum(score);
    if (thread < p.picks) {
        p.expert_ids[token * p.picks + thread] = expert;
        p.weights[token * p.picks + thread] = expert < 0 ? 0.0f : score / total * p.route_scale;
    }
}

template <int kWarps>
void run(const Params& p, cudaStream_t stream) {
    constexpr int kTokens = kThreads / (kWarps * 32);
    const size_t shared_bytes = size_t(kTokens) * p.experts * (sizeof(float) + sizeof(uint32_t));
    launch_dependent("router.pick", kernel<kWarps>, ceil_div(p.tokens, kTokens), kThreads, shared_bytes, stream, p);
}

}  // namespace

void pick(const Params& p, cudaStream_t stream) {
    // four tokens a block must leave their scores in 48 KiB
    const bool many = p.tokens > kManyTokens && p.experts <= 1024;
    many ? run<1>(p, stream) : run<kThreads / 32>(p, stream);
}

}  // namespace dsv4::router
