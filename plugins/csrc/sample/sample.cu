// One block a row: what the row is, its best tokens, its changed logits, its token.
#include <math_constants.h>

#include "common/op.h"
#include "sample/choose.cuh"
#include "sample/launch.h"
#include "sample/rules.cuh"

namespace dsv4::sample {
namespace {

struct Summary {
    u64 best;       // `ranked`
    float norm;     // log of the sum of exponentials
    bool finite;    // no NaN, no +inf
};

template <int N, bool kNorm>
__device__ __forceinline__ Summary summarise(const float* row, int vocab, Shared& shared) {
    u64 best = 0;
    float largest = -CUDART_INF_F, sum = 0;
    bool bad = false;
    for_each<N>(row, vocab, [&](int id, float x) {
        bad |= !(x < CUDART_INF_F);
        best = Largest{}(best, ranked(x, id));
        if (kNorm && x > -CUDART_INF_F) {
            const float other = expf(-fabsf(x - largest));
            sum = x > largest ? sum * other + 1 : sum + other;
            largest = fmaxf(largest, x);
        }
    });
    Summary found{};
    found.best = block_all(best, Largest{}, shared);
    found.finite = !__syncthreads_or(bad);
    if (kNorm) {
        const float peak = value_of(found.best);
        const float share = sum > 0 ? sum * expf(largest - peak) : 0;
        found.norm = peak + logf(block_all(share, Sum{}, shared));
    }
    return found;
}

// The best tokens of the raw logits, best first, and nothing behind them.
template <int N>
__device__ __forceinline__ void write_top(const Params& p, int64_t row, const float* raw, int count, float norm,
                                          Shared& shared) {
    int32_t* ids = p.top_ids + row * p.num_top;
    float* logprobs = p.top_logprobs + row * p.num_top;
    for (int i = count + threadIdx.x; i < p.num_top; i += kThreads) {
        ids[i] = -1;
        logprobs[i] = 0;
    }
    if (count <= 0) return;
    const Place last = by_value<N>(raw, p.vocab, One{}, count - 1, shared);
    const u64 least = u64(last.key) << 32 | ~uint32_t(token_at<N>(raw, p.vocab, last, shared));
    u64* candidates = p.candidates + row * p.num_top;
    if (threadIdx.x == 0) shared.count = 0;
    __syncthreads();
    for_each<N>(raw, p.vocab, [&](int id, float x) {
        const u64 rank = ranked(x, id);
        if (rank < least) return;
        const int at = atomicAdd(&shared.count, 1);
        if (at < count) candidates[at] = rank;
    });
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += kThreads) {
        const u64 mine = candidates[i];
        int place = 0;
        for (int j = 0; j < count; ++j) place += candidates[j] > mine;
        ids[place] = id_of(mine);
        logprobs[place] = value_of(mine) - norm;
    }
}

// Outputs of a row but for its top tokens.
__device__ __forceinline__ void write_token(const Params& p, int64_t row, int status, int token, float logprob) {
    if (threadIdx.x != 0) return;
    p.status[row] = status;
    p.token[row] = token;
    p.logprob[row] = logprob;
}

template <int N>
__global__ void __launch_bounds__(kThreads, 1) kernel(Params p) {
    __shared__ Shared shared;
    const int64_t row = blockIdx.x;
    const float* raw = p.logits + row * p.vocab;
    const Summary summary = summarise<N, true>(raw, p.vocab, shared);
    int status = summary.finite && value_of(summary.best) > -CUDART_INF_F ? kOk : kNoNumber;
    const float* logits = raw;
    u64 best = summary.best;
    if (status == kOk) {
        logits = apply_rules<N>(p, row, raw);
        if (logits != raw) {
            const Summary changed = summarise<N, false>(logits, p.vocab, shared);
            best = changed.best;
            status = !changed.finite ? kNoNumber : value_of(best) > -CUDART_INF_F ? kOk : kNothingLeft;
        }
    }
    const int wanted = min(p.limits[3 * row + 2], min(p.num_top, p.vocab));
    write_top<N>(p, row, raw, status == kOk ? max(wanted, 0) : 0, summary.norm, shared);
    if (status != kOk) return write_token(p, row, status, -1, 0);
    const int token = choose<N>(logits, p.vocab, Request::of(p, row), best, shared);
    write_token(p, row, status, token, raw[token] - summary.norm);
}

}  // namespace

void run(const Params& p, cudaStream_t stream) {
    const bool packs = p.vocab % 4 == 0 && aligned(p.logits, 16) && aligned(p.changed, 16);
    const auto chosen = packs ? kernel<4> : kernel<1>;
    chosen<<<static_cast<unsigned>(p.rows), kThreads, 0, stream>>>(p);
    check_launch("sample");
}

}  // namespace dsv4::sample
