// The token of a row: the best one, or a draw from what the filters leave.
#pragma once

#include "sample/by_value.cuh"
#include "sample/in_order.cuh"

namespace dsv4::sample {

struct Request {
    float temperature, min_p;
    double top_p, draw;
    int top_k;

    static __device__ __forceinline__ Request of(const Params& p, int64_t row) {
        const int32_t* doubles = p.doubles + 4 * row;
        return {p.scales[3 * row], p.scales[3 * row + 1], __hiloint2double(doubles[1], doubles[0]),
                __hiloint2double(doubles[3], doubles[2]), p.limits[3 * row]};
    }
};

// Of a total, what a running sum has to pass for a draw of 53 bits: floor(draw * total), exactly.
struct Share {
    u64 bits;   // draw * 2^53
    __device__ u64 operator()(u64 total) const { return __umul64hi(bits, total) << 11 | bits * total >> 53; }
};

struct Fixed {
    u64 value;
    __device__ u64 operator()(u64) const { return value; }
};

// The largest power of two that sums of `vocab` weights can have as their unit and stay below 2^63.
__device__ __forceinline__ float weight_scale(int vocab) {
    const int bits = 62 - (32 - __clz(vocab));
    return __uint_as_float(uint32_t(127 + bits) << 23);
}

// The token at a place of the row in order of value.
template <int N>
__device__ __forceinline__ int token_at(const float* row, int vocab, Place place, Shared& shared) {
    return in_order<N>(row, vocab, IsKey{place.key}, Fixed{place.rank - 1}, shared);
}

template <int N>
__device__ __forceinline__ int draw_filtered(const float* row, int vocab, const Request& request, Weight weight,
                                             Share share, Shared& shared) {
    Place last = {0, 0};    // below every logit
    Weight unfiltered = weight;
    unfiltered.min_p = 0;
    if (request.top_k > 0 && request.top_k < vocab) last = by_value<N>(row, vocab, One{}, request.top_k - 1, shared);
    if (request.top_p < 1) {
        const u64 total = sum_to<N>(row, vocab, unfiltered, last, shared);
        // a token stays if the sum ahead of it is below the share
        const u64 reached = min(total, static_cast<u64>(ceil(request.top_p * static_cast<double>(total))));
        last = by_value<N>(row, vocab, unfiltered, reached > 0 ? reached - 1 : 0, shared);
    }
    const u64 total = sum_to<N>(row, vocab, weight, last, shared);
    return token_at<N>(row, vocab, by_value<N>(row, vocab, weight, share(total), shared), shared);
}

// `best` is the row's largest logit and its token.
template <int N>
__device__ __forceinline__ int choose(const float* row, int vocab, const Request& request, u64 best, Shared& shared) {
    if (!(request.temperature > 0)) return id_of(best);
    constexpr float kLeast = 0x1p-126f;
    const Weight weight = {value_of(best), fmaxf(request.temperature, kLeast), request.min_p, weight_scale(vocab)};
    const Share share = {static_cast<u64>(request.draw * 0x1p53)};
    if (request.top_k > 0 || request.top_p < 1 || request.min_p > 0) {
        return draw_filtered<N>(row, vocab, request, weight, share, shared);
    }
    return in_order<N>(row, vocab, weight, share, shared);
}

}  // namespace dsv4::sample
