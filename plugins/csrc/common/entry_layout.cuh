// Formats of stored entries and their bytes in a page; the numbers are those of dsv4_trt/kv_layout.py.
#pragma once

#include "common/pages.cuh"

namespace dsv4 {

enum class Format { kFp32, kBf16, kFp8, kFp4 };

constexpr int kKvBlock = 64;   // channels that share a scale in an fp8 KV entry
constexpr int kMxBlock = 32;   // channels that share a scale in an fp4 indexer key

inline Format format_of(const Call& call, int attr) {
    return call.is(attr, "fp8") ? Format::kFp8
         : call.is(attr, "fp4") ? Format::kFp4
         : call.is(attr, "bf16") ? Format::kBf16
                                 : Format::kFp32;
}

// Fields of a window or compressed KV entry, the last `rope_dim` of its channels rotated.
inline EntryLayout kv_layout(Format format, int head_dim, int rope_dim, int per_page) {
    const int nope = head_dim - rope_dim, scales = nope / kKvBlock;
    DSV4_REQUIRE(format != Format::kFp4, "a KV entry has no fp4 format");
    if (format == Format::kFp32) return {4 * head_dim, 0, per_page};
    if (format == Format::kBf16) return {2 * head_dim, 0, per_page};
    DSV4_REQUIRE(nope % kKvBlock == 0, "%d channels are not rotated; expected a multiple of %d", nope, kKvBlock);
    return {nope + 2 * rope_dim, scales + scales % 2, per_page};
}

// Fields of an indexer key.
inline EntryLayout key_layout(Format format, int width, int per_page) {
    if (format == Format::kFp32) return {4 * width, 0, per_page};
    if (format == Format::kBf16) return {2 * width, 0, per_page};
    if (format == Format::kFp8) return {width, 4, per_page};
    return {width / 2, width / kMxBlock, per_page};
}

// Raises unless pages hold their entries, all fields aligned for the widest stores.
inline void require_pages(const Pool& pool, const EntryLayout& layout) {
    const int64_t needed = int64_t(layout.per_page) * (layout.row_bytes + layout.scale_bytes);
    DSV4_REQUIRE(layout.per_page > 0 && pool.page_bytes >= needed,
                 "a page of %lld bytes has %d entries of %d bytes; expected at least one, and room for all",
                 static_cast<long long>(pool.page_bytes), layout.per_page, layout.row_bytes + layout.scale_bytes);
    DSV4_REQUIRE(pool.page_bytes % 16 == 0 && layout.row_bytes % 16 == 0 && aligned(pool.bytes, 16),
                 "a pool of %lld bytes a page and entries of %d bytes; expected multiples of 16",
                 static_cast<long long>(pool.page_bytes), layout.row_bytes);
}

}  // namespace dsv4
