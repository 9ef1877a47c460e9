// Brings the keys of a tile from pages into shared memory as bf16. Each warp looks after its own keys of every
// tile: it finds where they lie two tiles ahead, copies them one tile ahead, and decodes them.
#pragma once

#include "sparse_attention/decode_mma.cuh"
#include "sparse_attention/decode_plan.h"
#include "sparse_attention/keys.cuh"

namespace dsv4::sparse_attention {

constexpr int kRowBytes = kDecodeDim * 2;  // of a bf16 key in shared memory
constexpr int kNope = kDecodeDim - 2 * kDecodeRopePairs;

// Where 16 bytes of a row lie in a tile of rows: eight rows below each other hit different banks.
__device__ __forceinline__ uint32_t swizzled(int row, int chunk) {
    return row * kRowBytes + ((chunk ^ (row & 7)) << 4);
}

// Bytes of a key as it lies in its page: the row, then its scales apart.
template <Format F>
struct Raw {
    static constexpr int kRow = F == Format::kFp8 ? kNope + 4 * kDecodeRopePairs : kRowBytes;
    static constexpr int kScales = F == Format::kFp8 ? 8 : 0;
};

// Eight e4m3 codes times a power of two, exact in bf16.
__device__ __forceinline__ uint4 decode_codes(uint2 codes, float scale) {
    const uint32_t words[2] = {codes.x, codes.y};
    uint4 out;
    uint32_t* parts = &out.x;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint16_t two = static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16));
        const float2 pair = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(two, __NV_E4M3)));
        const __nv_bfloat162 packed = __floats2bfloat162_rn(pair.x * scale, pair.y * scale);
        parts[i] = *reinterpret_cast<const uint32_t*>(&packed);
    }
    return out;
}

// One warp's `Keys` keys of the tiles that follow each other. Lane i < Keys knows key i.
template <Format F, int Tile, int Keys>
struct Gather {
    const Params& p;
    const Query& query;
    uint8_t* raw;       // [Keys][Raw::kRow], of this warp
    uint8_t* scales;    // [Keys][8]
    int lane, first;    // lane's slot in tile 0, -1 if it has none
    Key key;            // of the tile that is being copied
    int entry, page;    // of the tile after it
    int later_entry;    // of the one after that

    __device__ Gather(const Params& params, const Query& asked, uint8_t* rows, uint8_t* row_scales, int warp)
        : p(params), query(asked), raw(rows + warp * Keys * Raw<F>::kRow),
          scales(row_scales + warp * Keys * Raw<F>::kScales), lane(threadIdx.x % 32),
          first(lane < Keys ? warp * Keys + lane : -1) {}

    __device__ int slot(int tile) const { return first < 0 ? -1 : tile * Tile + first; }

    __device__ int page_of(int tile, int its_entry) const {
        if (its_entry < 0 || key_is_new(query, slot(tile), its_entry)) return -1;
        return key_page(p, query, slot(tile), its_entry);
    }

    // Copies the first tile.
    __device__ void start(int tile) {
        entry = key_entry(p, query, slot(tile));
        later_entry = key_entry(p, query, slot(tile + 1));
        page = page_of(tile, entry);
        advance(tile);
    }

    // Copies `tile`, the next after the one copied last, and looks further ahead.
    __device__ void advance(int tile) {
        key = entry >= 0 && key_is_new(query, slot(tile), entry) ? new_key(p, query, entry)
                                                                : key_in_page(p, query, slot(tile), entry, page);
        copy();
        entry = later_entry;
        page = page_of(tile + 1, entry);
        later_entry = key_entry(p, query, slot(tile + 2));
    }

    __device__ uint32_t valid() const { return __ballot_sync(kAll, lane < Keys && key.row); }

    // What key `k` is, in every lane.
    __device__ const uint8_t* row_of(int k) const {
        const uint64_t bits = __shfl_sync(kAll, reinterpret_cast<uint64_t>(key.row), k);
        return reinterpret_cast<const uint8_t*>(bits);
    }

    static constexpr uint32_t kAll = 0xFFFFFFFFu;

    __device__ void copy() {
        // rows of activations are decoded from where they are, unless they look like entries
        const bool copied = key.row && (F == Format::kBf16 || !key.activation);
        const uint32_t mask = __ballot_sync(kAll, lane < Keys && copied);
        constexpr int kChunks = Raw<F>::kRow / 16;
#pragma unroll
        for (int i = 0; i < (Keys * kChunks + 31) / 32; ++i) {
            const int chunk = i * 32 + lane;
            const int k = chunk / kChunks;
            const uint8_t* row = row_of(k);
            if (mask >> k & 1) copy_async16(shared_address(raw + chunk * 16), row + chunk % kChunks * 16);
        }
        if (F == Format::kFp8 && lane < Keys && copied) copy_async8(shared_address(scales + lane * 8), key.scales);
    }

    // The two halves of key k that this lane holds: chunks `lane` and `lane + 32`.
    __device__ void load(int k, uint4 (&out)[2]) const {
        const uint8_t* row = raw + k * Raw<F>::kRow;
        if (F == Format::kBf16) {
            out[0] = *reinterpret_cast<const uint4*>(row + lane * 16);
            out[1] = *reinterpret_cast<const uint4*>(row + (lane + 32) * 16);
            return;
        }
        const uint8_t* bytes = scales + k * 8;
        constexpr int kCodes = kNope / 8 - 32;  // chunks of codes in the second half
        out[0] = decode_codes(*reinterpret_cast<const uint2*>(row + lane * 8), e8m0_decode(bytes[lane / 8]));
        if (lane < kCodes) {
            out[1] = decode_codes(*reinterpret_cast<const uint2*>(row + 256 + lane * 8),
                                  e8m0_decode(bytes[4 + lane / 8]));
        } else {
            out[1] = *reinterpret_cast<const uint4*>(row + kNope + (lane - kCodes) * 16);
        }
    }

    // Writes the tile copied last to `tile`, zeros where there is no key. Each lane waits for its own copies first.
    __device__ void decode(uint8_t* tile, int warp, uint32_t valid) {
        const uint32_t direct = __ballot_sync(kAll, lane < Keys && key.row && key.activation && F != Format::kBf16);
#pragma unroll
        for (int k = 0; k < Keys; ++k) {
            uint4 parts[2] = {};
            const uint8_t* row = row_of(k);
            if (direct >> k & 1) {
                parts[0] = *reinterpret_cast<const uint4*>(row + lane * 16);
                parts[1] = *reinterpret_cast<const uint4*>(row + (lane + 32) * 16);
            } else if (valid >> k & 1) {
                load(k, parts);
            }
            const int at = warp * Keys + k;
            *reinterpret_cast<uint4*>(tile + swizzled(at, lane)) = parts[0];
            *reinterpret_cast<uint4*>(tile + swizzled(at, lane + 32)) = parts[1];
        }
    }
};

}  // namespace dsv4::sparse_attention
