// The arithmetic of a site: pre, post and comb of a token, and what the streams become.
#pragma once

#include "common/numbers.cuh"
#include "common/pack.cuh"
#include "mhc/mhc.h"

namespace dsv4::mhc {

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Makes `comb` (logits, source stream first) nearly doubly stochastic: `iters` row passes, each before a
// column pass; the softmax is the first row pass. Rows and columns keep a factor each, so that a pass
// is four dot products and not sixteen divisions.
__device__ inline void sinkhorn(float (&comb)[kStreams][kStreams], int iters, float eps) {
    float row[kStreams], column[kStreams];
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
        float (&c)[kStreams] = comb[j];
        const float most = fmaxf(fmaxf(c[0], c[1]), fmaxf(c[2], c[3]));
#pragma unroll
        for (int k = 0; k < kStreams; ++k) c[k] = expf(c[k] - most);
        const float sum = (c[0] + c[1]) + (c[2] + c[3]);
#pragma unroll
        for (int k = 0; k < kStreams; ++k) c[k] = c[k] / sum + eps;
        row[j] = column[j] = 1;
    }
    for (int pass = 0; pass < iters; ++pass) {
        if (pass > 0) {
#pragma unroll
            for (int j = 0; j < kStreams; ++j) {
                const float (&c)[kStreams] = comb[j];
                const float sum = (c[0] * column[0] + c[1] * column[1]) + (c[2] * column[2] + c[3] * column[3]);
                row[j] = __fdividef(row[j], row[j] * sum + eps);
            }
        }
#pragma unroll
        for (int k = 0; k < kStreams; ++k) {
            const float sum = (comb[0][k] * row[0] + comb[1][k] * row[1]) + (comb[2][k] * row[2] + comb[3][k] * row[3]);
            column[k] = __fdividef(column[k], column[k] * sum + eps);
        }
    }
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
#pragma unroll
        for (int k = 0; k < kStreams; ++k) comb[j][k] *= row[j] * column[k];
    }
}

// One stream after a site is left: post * y + sum over j of comb[j] * x[j], rounded to T. In the order and
// with the roundings of the reference: a stream that rounds the other way shows in the next site's mixes.
template <class T, int N>
__device__ __forceinline__ Pack<T, N> leave(float post, const float (&comb)[kStreams], const Pack<T, N>& y,
                                            const Pack<T, N> (&x)[kStreams]) {
    Pack<T, N> out;
#pragma unroll
    for (int e = 0; e < N; ++e) {
        float kept = comb[0] * to_float(x[0].at[e]);
#pragma unroll
        for (int j = 1; j < kStreams; ++j) kept = fmaf(comb[j], to_float(x[j].at[e]), kept);
        out.at[e] = from_float<T>(__fadd_rn(__fmul_rn(post, to_float(y.at[e])), kept));
    }
    return out;
}

// The layer input before its norm: the streams weighted by `pre`, rounded to T.
template <class T, int N>
__device__ __forceinline__ Pack<T, N> collapse(const float (&pre)[kStreams], const Pack<T, N> (&x)[kStreams]) {
    Pack<T, N> out;
#pragma unroll
    for (int e = 0; e < N; ++e) {
        float sum = pre[0] * to_float(x[0].at[e]);
#pragma unroll
        for (int j = 1; j < kStreams; ++j) sum = fmaf(pre[j], to_float(x[j].at[e]), sum);
        out.at[e] = from_float<T>(sum);
    }
    return out;
}

template <class T, int N>
__device__ __forceinline__ float squares(const Pack<T, N>& x) {
    float sum = 0;
#pragma unroll
    for (int e = 0; e < N; ++e) sum = fmaf(to_float(x.at[e]), to_float(x.at[e]), sum);
    return sum;
}

template <class T, int N>
__device__ __forceinline__ Pack<T, N> normalised(const Pack<T, N>& x, const Pack<bf16, N>& weight, float scale) {
    Pack<T, N> out;
#pragma unroll
    for (int e = 0; e < N; ++e) out.at[e] = from_float<T>(to_float(weight.at[e]) * (to_float(x.at[e]) * scale));
    return out;
}

}  // namespace dsv4::mhc
