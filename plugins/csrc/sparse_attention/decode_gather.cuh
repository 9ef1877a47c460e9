// Brings the keys of a tile from pages into shared memory as bf16. Each warp looks after its own keys of every
// tile: it finds where they lie two tiles ahead, copies them one tile ahead, and decodes them.
#pragma once

#include "common/shared_memory.cuh"
#include "sparse_attention/decode_layout.cuh"
#include "sparse_attention/keys.cuh"

namespace dsv4::sparse_attention {

// Eight e4m3 codes times a power of two, exactly.
__device__ __forceinline__ uint4 decode_codes(uint2 codes, __nv_bfloat162 scale) {
    const uint32_t words[2] = {codes.x, codes.y};
    uint4 out;
    uint32_t* parts = &out.x;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint16_t two = static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16));
        const __half2 halves{__nv_cvt_fp8x2_to_halfraw2(two, __NV_E4M3)};
        const __nv_bfloat162 pair = __hmul2(__float22bfloat162_rn(__half22float2(halves)), scale);
        parts[i] = *reinterpret_cast<const uint32_t*>(&pair);
    }
    return out;
}

// An e8m0 scale as bf16 twice; those of 2^-127 and NaN have a mantissa bit.
__device__ __forceinline__ __nv_bfloat162 decode_scale(uint32_t byte) {
    const uint32_t bits = byte << 7 | (((byte + 1) & 0xFF) < 2 ? 0x40u : 0u);
    const uint32_t twice = bits << 16 | bits;
    return *reinterpret_cast<const __nv_bfloat162*>(&twice);
}

// One warp's keys of the tiles that follow each other; lane i < kKeys knows key i. What it has to remember is
// kept small, because the values need the registers.
template <Format F, int Heads, int Tile>
struct Gather {
    using L = Layout<F, Heads, Tile>;
    static constexpr int kKeys = L::kKeys;
    static constexpr uint32_t kAll = 0xFFFFFFFFu;

    const Params& p;
    const Query& query;
    uint8_t* memory;
    const uint8_t* row = nullptr;  // of the tile that is being copied; null: no key
    bool activation = false;       // a row of activations
    int entry = -1, page = -1;     // of the tile after it
    int later_name = -1;           // of the one after that, still unchecked

    __device__ Gather(const Params& params, const Query& asked, uint8_t* shared)
        : p(params), query(asked), memory(shared) {}

    __device__ static int warp() { return threadIdx.x / 32; }
    __device__ static int lane() { return threadIdx.x % 32; }
    __device__ uint8_t* raw() const { return memory + L::kRaw + warp() * kKeys * Raw<F>::kRow; }
    __device__ uint8_t* scales() const { return memory + L::kScales + warp() * kKeys * Raw<F>::kScales; }
    __device__ uint8_t* fresh() const { return memory + L::kFresh + warp() * Raw<F>::kFresh; }
    __device__ int slot(int tile) const { return lane() < kKeys ? tile * Tile + warp() * kKeys + lane() : -1; }

    __device__ int page_of(int tile, int its_entry) const {
        if (its_entry < 0 || key_is_new(query, slot(tile), its_entry)) return -1;
        return key_page(p, query, slot(tile), its_entry);
    }

    // Copies the first tile.
    __device__ void start(int tile) {
        const int name = key_name(p, query, slot(tile));
        later_name = key_name(p, query, slot(tile + 1));
        entry = key_entry(query, slot(tile), name);
        page = page_of(tile, entry);
        advance(tile);
    }

    // Copies `tile`, the next after the one copied last, and looks further ahead.
    __device__ void advance(int tile) {
        const Key key = entry >= 0 && key_is_new(query, slot(tile), entry)
                            ? new_key(p, query, entry)
                            : key_in_page(p, query, slot(tile), entry, page);
        row = key.row;
        activation = key.activation;
        copy(key.scales);
        entry = key_entry(query, slot(tile + 1), later_name);
        page = page_of(tile + 1, entry);
        later_name = key_name(p, query, slot(tile + 2));
    }

    // Bit i: the warp has a key i.
    __device__ uint32_t valid() const { return __ballot_sync(kAll, row != nullptr); }

    // Row of key k, in every lane.
    __device__ const uint8_t* row_of(int k) const {
        const uint64_t bits = __shfl_sync(kAll, reinterpret_cast<uint64_t>(row), k);
        return reinterpret_cast<const uint8_t*>(bits);
    }

    // The keys that are rows of activations and look unlike entries. The first is copied apart, which is all
    // that a decode step has; more are read where they are.
    __device__ uint32_t fresh_keys() const {
        return F == Format::kBf16 ? 0 : __ballot_sync(kAll, row && activation);
    }

    __device__ void copy(const uint8_t* its_scales) {
        const uint32_t apart = fresh_keys();
        if (apart) {
            const uint8_t* from = row_of(__ffs(apart) - 1);
            copy_async<16>(shared_address(fresh() + lane() * 16), from + lane() * 16);
            copy_async<16>(shared_address(fresh() + (lane() + 32) * 16), from + (lane() + 32) * 16);
        }
        const uint32_t copied = valid() & ~apart;
        constexpr int kChunks = Raw<F>::kRow / 16;
#pragma unroll
        for (int i = 0; i < (kKeys * kChunks + 31) / 32; ++i) {
            const int chunk = i * 32 + lane();
            const int k = chunk / kChunks;
            const uint8_t* from = row_of(k);
            if (copied >> k & 1) copy_async<16>(shared_address(raw() + chunk * 16), from + chunk % kChunks * 16);
        }
        if (F == Format::kFp8 && (copied >> lane() & 1)) copy_async<8>(shared_address(scales() + lane() * 8), its_scales);
    }

    // The two halves of entry k that this lane decodes: chunks `lane` and `lane + 32` of eight channels. Lanes whose
    // second chunk is of rotated channels do as the others do and keep the bytes; so no lane waits for another.
    __device__ void load(int k, uint4 (&out)[2]) const {
        const uint8_t* from = raw() + k * Raw<F>::kRow;
        if (F == Format::kBf16) return load_plain(from, out);
        constexpr int kCodes = kNope / 8 - 32;  // chunks of codes in the second half
        const int at = lane();
        const bool coded = at < kCodes;
        const uint8_t* second = from + (coded ? 256 + at * 8 : kNope + (at - kCodes) * 16);
        const uint2 a = *reinterpret_cast<const uint2*>(from + at * 8), b = *reinterpret_cast<const uint2*>(second);
        const uint2 c = *reinterpret_cast<const uint2*>(second + (coded ? 0 : 8));
        const uint8_t* bytes = scales() + k * 8 + at / 8;
        out[0] = decode_codes(a, decode_scale(bytes[0]));
        const uint4 decoded = decode_codes(b, decode_scale(bytes[4]));
        out[1] = coded ? decoded : uint4{b.x, b.y, c.x, c.y};
    }

    __device__ static void load_plain(const uint8_t* from, uint4 (&out)[2]) {
        out[0] = *reinterpret_cast<const uint4*>(from + lane() * 16);
        out[1] = *reinterpret_cast<const uint4*>(from + (lane() + 32) * 16);
    }

    __device__ void store(int k, const uint4 (&parts)[2]) const {
        const int at = warp() * kKeys + k;
        *reinterpret_cast<uint4*>(memory + L::kTile + swizzled(at, lane())) = parts[0];
        *reinterpret_cast<uint4*>(memory + L::kTile + swizzled(at, lane() + 32)) = parts[1];
    }

    // Writes the warp's keys of the tile copied last, zeros where there is none, and says which there are. Each lane
    // waits for its own copies first.
    __device__ uint32_t decode() {
        const uint32_t there = valid(), apart = fresh_keys();
        if (there == (1u << kKeys) - 1 && apart == 0) {  // without branches, keys are decoded side by side
#pragma unroll 4
            for (int k = 0; k < kKeys; ++k) {
                uint4 parts[2];
                load(k, parts);
                store(k, parts);
            }
        } else {
#pragma unroll 1
            for (int k = 0; k < kKeys; ++k) {
                uint4 parts[2] = {};
                if (apart >> k & 1) {
                    load_plain(k == __ffs(apart) - 1 ? fresh() : row_of(k), parts);
                } else if (there >> k & 1) {
                    load(k, parts);
                }
                store(k, parts);
            }
        }
        if (lane() < kKeys) memory[L::kSeen + warp() * kKeys + lane()] = there >> lane() & 1;
        return there;
    }
};

}  // namespace dsv4::sparse_attention
