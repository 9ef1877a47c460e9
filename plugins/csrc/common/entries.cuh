// One entry of a cache class in its bytes, bit for bit as plugins/reference/entries.py writes it.
//
// Adjacent lanes hold an entry together, N consecutive channels each. Every lane of the warp must call,
// also those whose entry goes nowhere: scales come from neighbours.
#pragma once

#include "common/entry_layout.cuh"
#include "common/vectors.cuh"

namespace dsv4 {

// Where an entry is written; null: nowhere.
struct EntryPlace {
    uint8_t *row, *scales;
};

__device__ __forceinline__ EntryPlace entry_place(const Pool& pool, const EntryLayout& layout, int page, int entry) {
    if (!pool.has(page)) return {nullptr, nullptr};
    uint8_t* bytes = pool.at(page);
    return {bytes + layout.row(entry), bytes + layout.scales(entry)};
}

template <int N>
__device__ __forceinline__ void put_plain(Format format, uint8_t* row, int channel, float (&x)[N]) {
    if (format == Format::kBf16) round_all<bf16>(x);
    if (!row) return;
    if (format == Format::kBf16) {
        store(reinterpret_cast<bf16*>(row) + channel, x);
    } else {
        store(reinterpret_cast<float*>(row) + channel, x);
    }
}

// Channels `channel .. channel + N` of a KV entry whose first `nope` are not rotated; leaves in x what
// reads back.
template <int N>
__device__ __forceinline__ void put_kv(Format format, const EntryPlace& to, int channel, int nope, float (&x)[N]) {
    if (format != Format::kFp8) return put_plain(format, to.row, channel, x);
    const uint8_t scale = act8_scale(largest<kKvBlock / N>(x));
    if (channel >= nope) {
        round_all<bf16>(x);
        if (!to.row) return;
        store(reinterpret_cast<bf16*>(to.row + nope) + (channel - nope), x);
        if (channel == nope && nope / kKvBlock % 2) to.scales[nope / kKvBlock] = 0;  // pads to an even count
        return;
    }
    const float inverse = e8m0_inverse(scale), factor = e8m0_decode(scale);
    if (to.row) {
        store_e4m3(to.row + channel, x, inverse);
        if (channel % kKvBlock == 0) to.scales[channel / kKvBlock] = scale;
    }
#pragma unroll
    for (int i = 0; i < N; i += 2) {
        const float2 back = e4m3_pair_values(e4m3_pair(__fmul_rn(x[i], inverse), __fmul_rn(x[i + 1], inverse)));
        x[i] = back.x * factor;
        x[i + 1] = back.y * factor;
    }
}

// Channels `4 * lane ..` of an indexer key of 128.
__device__ __forceinline__ void put_key(Format format, const EntryPlace& to, int lane, float (&x)[4]) {
    if (format == Format::kFp8) {
        const uint8_t scale = act8_scale(largest<32>(x));
        if (!to.row) return;
        store_e4m3(to.row + 4 * lane, x, e8m0_inverse(scale));
        if (lane == 0) *reinterpret_cast<float*>(to.scales) = e8m0_decode(scale);
    } else if (format == Format::kFp4) {
        const uint8_t scale = act4_scale(largest<kMxBlock / 4>(x));
        const float inverse = e8m0_inverse(scale);
        uint32_t codes = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) codes |= e2m1_encode(__fmul_rn(x[i], inverse)) << (4 * i);
        if (!to.row) return;
        reinterpret_cast<uint16_t*>(to.row)[lane] = static_cast<uint16_t>(codes);
        if (lane % 8 == 0) to.scales[lane / 8] = scale;
    } else {
        put_plain(format, to.row, 4 * lane, x);
    }
}

}  // namespace dsv4
