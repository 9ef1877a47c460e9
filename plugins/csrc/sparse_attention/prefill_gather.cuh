// Bringing rows into swizzled tiles: four neighbouring threads (`part` 0 to 3) bring one row of 512 channels.
//
// In a row's 16-byte chunks of a 64-channel block, threads take 4i + part, with i exchanged in odd rows: so
// eight threads of two rows write eight different chunks, in different banks.
#pragma once

#include "sparse_attention/prefill_plan.cuh"

namespace dsv4::sparse_attention::prefill_kernel {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int kCodeLoads = kScaled / 64;       // 16 bytes by each thread

// The codes of an fp8 entry on their way, a quarter in each of four threads.
struct Codes {
    uint4 load[kCodeLoads];    // i: channels 64 i + 16 part and on, scale i
    uint2 scales;
};

// Of a chunk in the first block of a tile.
__device__ __forceinline__ uint32_t chunk_address(uint32_t tile, int row, int chunk) {
    return tile + row * 128 + ((chunk ^ (row & 7)) << 4);
}

// The chunk of a block that a thread takes in its turn i of two.
__device__ __forceinline__ int plain_chunk(int row, int part, int i) { return 4 * ((i ^ row) & 1) + part; }

__device__ __forceinline__ void copy_row(uint32_t tile, int row, int part, const uint8_t* from) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int chunk = plain_chunk(row, part, i);
        const uint32_t to = chunk_address(tile, row, chunk);
        const uint8_t* source = from + chunk * 16;
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) copy_async<16>(to + block * kBlockBytes, source + block * 128);
    }
}

__device__ __forceinline__ void clear_row(uint32_t tile, int row, int part) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const uint32_t to = chunk_address(tile, row, plain_chunk(row, part, i));
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) store_chunk(to + block * kBlockBytes, uint4{0, 0, 0, 0});
    }
}

__device__ __forceinline__ void load_codes(Codes& codes, const Place& place, int part) {
    const uint4* chunks = reinterpret_cast<const uint4*>(place.row) + part;
    codes.scales = __ldg(reinterpret_cast<const uint2*>(place.row + place.scales));
#pragma unroll
    for (int i = 0; i < kCodeLoads; ++i) codes.load[i] = __ldg(chunks + 4 * i);
}

// Four e4m3 codes times a power of two, exactly.
__device__ __forceinline__ uint2 decode(uint32_t codes, __nv_bfloat162 scale) {
    uint32_t out[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const __nv_fp8x2_storage_t pair = static_cast<__nv_fp8x2_storage_t>(codes >> (16 * i));
        const __half2 halves{__half2_raw(__nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3))};
        const __nv_bfloat162 value = __hmul2(__float22bfloat162_rn(__half22float2(halves)), scale);
        out[i] = *reinterpret_cast<const uint32_t*>(&value);
    }
    return {out[0], out[1]};
}

// The rotated channels of an fp8 entry, as they are.
__device__ __forceinline__ void copy_rotated(uint32_t tile, int row, int part, const uint8_t* from) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int chunk = plain_chunk(row, part, i);
        const uint32_t to = chunk_address(tile + (kBlocks - 1) * kBlockBytes, row, chunk);
        copy_async<16>(to, from + kScaled + chunk * 16);
    }
}

// Byte i, an e8m0 scale, as bf16 twice.
__device__ __forceinline__ __nv_bfloat162 decode_scale(uint32_t bytes, int i) {
    uint32_t twice;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(twice) : "r"(bytes), "r"(0x4040 | i << 8 | i));
    const bool special = ((twice + 1) & 0xFF) < 2;  // 2^-127 and NaN have a mantissa bit
    twice = twice << 7 | (special ? 0x00400040u : 0);
    return *reinterpret_cast<const __nv_bfloat162*>(&twice);
}

__device__ __forceinline__ void store_codes(uint32_t tile, int row, int part, const Codes& codes) {
    const uint32_t low = chunk_address(tile, row, 2 * part), high = chunk_address(tile, row, 2 * part + 1);
#pragma unroll
    for (int i = 0; i < kCodeLoads; ++i) {
        const __nv_bfloat162 scale = decode_scale(i < 4 ? codes.scales.x : codes.scales.y, i % 4);
        const uint2 a = decode(codes.load[i].x, scale), b = decode(codes.load[i].y, scale);
        store_chunk(low + i * kBlockBytes, {a.x, a.y, b.x, b.y});
        const uint2 c = decode(codes.load[i].z, scale), d = decode(codes.load[i].w, scale);
        store_chunk(high + i * kBlockBytes, {c.x, c.y, d.x, d.y});
    }
}

#endif

}  // namespace dsv4::sparse_attention::prefill_kernel
