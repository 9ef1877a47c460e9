// A warp normalises and rotates query heads, and one window key. What it does before it waits rests on tables and
// lists of the step, which are older than the kernel ahead.
#pragma once

#include "common/dependent_launch.cuh"
#include "qkv_rope_insert/qkv_rope_insert.h"

namespace dsv4::qkv_rope_insert {

// Angles of the lane's channels in a row's last chunk, the one with all rotated channels.
template <int kChunks>
__device__ __forceinline__ Angles<8> row_angles(const Params& p, int token, int lane) {
    const float2 own = lane < p.pairs ? rope_angle(p.positions[token], p.inv_freq[lane]) : float2{1, 0};
    return borrow_angles<8>(own, (kChunks - 1) * kChunk + lane * 8, p.head_dim - 2 * p.pairs);
}

template <class T, int kChunks>
__device__ __forceinline__ void rotate_row(const Params& p, int lane, const Angles<8>& angles,
                                           float (&x)[kChunks][8]) {
    rotate_channels<T>(x[kChunks - 1], (kChunks - 1) * kChunk + lane * 8, p.head_dim - 2 * p.pairs, angles);
}

// Channels of a row in a warp: 8 a lane in each chunk; those beyond the row are zeros.
template <class T, int kChunks>
__device__ __forceinline__ void load_row(const T* row, int width, int lane, float (&x)[kChunks][8]) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
        const int channel = c * kChunk + lane * 8;
        if (channel < width) {
            load_once(row + channel, x[c]);
        } else {
            for (float& value : x[c]) value = 0;
        }
    }
}

template <class T, int kChunks>
__device__ __forceinline__ void store_row(T* row, int width, int lane, const float (&x)[kChunks][8]) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
        const int channel = c * kChunk + lane * 8;
        if (channel < width) store(row + channel, x[c]);
    }
}

// x / sqrt(mean(x^2) + eps) with every step rounded to T, as the reference does it.
template <class T, int kChunks>
__device__ __forceinline__ void normalise(const Params& p, float (&x)[kChunks][8]) {
    float sum = 0;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
        float squares[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) squares[i] = __fmul_rn(x[c][i], x[c][i]);
        round_all<T>(squares);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum += squares[i];
    }
    const float mean = rounded<T>(warp_sum(sum) * p.per_channel);
    const float factor = rounded<T>(rsqrtf(rounded<T>(__fadd_rn(mean, p.eps))));
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
        for (int i = 0; i < 8; ++i) x[c][i] = __fmul_rn(x[c][i], factor);
        round_all<T>(x[c]);
    }
}

// `kHeads` adjacent heads of one token.
template <class T, int kChunks, int kHeads>
__device__ __forceinline__ void query_heads(const Params& p, int token, int64_t first_head, int lane) {
    constexpr bool kFew = kHeads == 1;  // blocks that are all there at once; others rather ask for q first
    Angles<8> angles;
    if (kFew) angles = row_angles<kChunks>(p, token, lane);
    wait_for_previous();
    allow_next();
    const T* q = static_cast<const T*>(p.q) + first_head * p.head_dim;
    float x[kHeads][kChunks][8];
#pragma unroll
    for (int h = 0; h < kHeads; ++h) load_row<T, kChunks>(q + h * p.head_dim, p.head_dim, lane, x[h]);
    if (!kFew) angles = row_angles<kChunks>(p, token, lane);
    T* out = static_cast<T*>(p.q_out) + first_head * p.head_dim;
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
        normalise<T, kChunks>(p, x[h]);
        rotate_row<T, kChunks>(p, lane, angles, x[h]);
        store_row<T, kChunks>(out + h * p.head_dim, p.head_dim, lane, x[h]);
    }
}

// The window ring after the step starts in column `window_pages`.
__device__ __forceinline__ EntryPlace slot_place(const Params& p, int token) {
    const int seq = p.seq_ids[token], slot = p.slots[token];
    if (seq < 0 || seq >= p.seqs || slot < 0) return {nullptr, nullptr};
    const int page = p.table.page(p.table_rows[seq], p.window_pages + slot / p.entry.per_page);
    return entry_place(p.pool, p.entry, page, slot % p.entry.per_page);
}

template <class T, int kChunks>
__device__ __forceinline__ void window_key(const Params& p, int token, int lane) {
    const EntryPlace place = slot_place(p, token);
    const Angles<8> angles = row_angles<kChunks>(p, token, lane);
    wait_for_previous();
    allow_next();
    float x[kChunks][8];
    load_row<T, kChunks>(static_cast<const T*>(p.kv) + int64_t(token) * p.head_dim, p.head_dim, lane, x);
    rotate_row<T, kChunks>(p, lane, angles, x);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
        const int channel = c * kChunk + lane * 8;
        const EntryPlace own = channel < p.head_dim ? place : EntryPlace{nullptr, nullptr};
        put_kv(p.format, own, channel, p.head_dim - 2 * p.pairs, x[c]);
    }
    store_row<T, kChunks>(static_cast<T*>(p.kv_out) + int64_t(token) * p.head_dim, p.head_dim, lane, x);
}

}  // namespace dsv4::qkv_rope_insert
