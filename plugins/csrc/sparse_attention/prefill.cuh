// How the prefill kernel divides the work, and what its warpgroups share.
//
// An item is 64 rows of q: the heads of one query, or where queries share their keys and have fewer heads,
// of some neighbouring queries. Its keys pass by in tiles of 64. Two producer warpgroups gather a tile
// while two consumer warpgroups work on the one before: each scores 32 of the 64 keys, they exchange
// probabilities, and each sums up the values of half of the channels.
#pragma once

#include <limits.h>

#include "sparse_attention/keys.cuh"
#include "sparse_attention/prefill_wgmma.cuh"

namespace dsv4::sparse_attention::prefill_kernel {

constexpr int kDim = 512, kRopePairs = 32, kScaled = 448;  // channels: all, pairs rotated, in e4m3
constexpr int kRows = 64, kKeys = 64, kBlocks = kDim / 64;
constexpr int kBlockBytes = 64 * 128;             // 64 rows of 64 channels
constexpr int kTileBytes = kBlocks * kBlockBytes;
constexpr int kMaxQueries = 8;                    // of one item
constexpr int kConsumers = 256, kProducers = 256, kThreads = kConsumers + kProducers;
constexpr int kConsumerRegisters = 176, kProducerRegisters = 80;

enum Barrier { kPeaks = 1, kProbs, kGather };     // named barriers

// Items of a call, from sizes alone.
struct Work {
    int query_rows;   // rows of an item that one query takes
    int queries;      // of an item
    int head_blocks;  // items that the heads of one query take
    int items;
    int swa_shift, entry_shift;  // an entry's number to its page's

    static Work of(const Params& p) {
        Work work;
        work.query_rows = p.heads < kRows ? p.heads : kRows;
        const int fitting = kRows / work.query_rows;
        work.queries = p.picked ? 1 : fitting < kMaxQueries ? fitting : kMaxQueries;
        work.head_blocks = (p.heads + kRows - 1) / kRows;
        work.items = (p.tokens - p.num_decodes + work.queries - 1) / work.queries * work.head_blocks;
        work.swa_shift = shift_of(p.swa.entry.per_page);
        work.entry_shift = p.ratio ? shift_of(p.compressed.entry.per_page) : 0;
        return work;
    }

    // -1 if it is no power of two.
    static int shift_of(int entries) {
        for (int shift = 0; shift < 31; ++shift) {
            if (entries == 1 << shift) return shift;
        }
        return -1;
    }
};

struct Slots {
    int begin, end;
};

// The keys of an item in one row of slots: of each sequence in turn, the window of its queries, then entries.
struct Plan {
    Query span[kMaxQueries];      // the keys of all queries of the same sequence
    int base[kMaxQueries];        // its first slot; beyond all slots for padding rows
    Slots window[kMaxQueries];    // what each query sees
    Slots entries[kMaxQueries];
    int first_page[kMaxQueries], first_column[kMaxQueries];  // of the oldest key in its window's ring
    int slots, alive;             // in all; bits of queries that are not padding
};

// What consumers are told about an item and about a tile. Producers may tell of an item while consumers
// still finish the one before the last.
constexpr int kItems = 3;
struct Item {
    int token, head, alive;       // first row and head; alive is 0 when there are no more items
    float2 turn[kMaxQueries * kRopePairs];  // cos, sin of the way back
};
struct Tile {
    uint8_t valid[8];             // a bit per key
    uint32_t seen[kMaxQueries][2];  // by each query, if valid
    int last;                     // of the item
};

struct Shared {
    uint8_t q[kTileBytes];
    uint8_t keys[2][kTileBytes];
    uint8_t probs[2][kBlockBytes];  // 64 rows x 64 keys
    float peak[2][kRows];           // of each consumer's keys
    float total[2][kRows];
    Plan plan[2];
    Item item[kItems];
    Tile tile[2];
    uint64_t full[2], empty[2];   // tiles
    uint64_t q_full, q_empty;
};
static_assert(sizeof(Shared) + 1024 <= 227 * 1024);

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Where a warpgroup is: at which of the two tiles, of the items told of, and in which round of the barriers.
struct TilePlace {
    int count = 0;
    __device__ int stage() const { return count & 1; }
    __device__ int parity() const { return count >> 1 & 1; }
    __device__ void next() { ++count; }
};
struct ItemPlace {
    int slot = 0, parity = 0;
    __device__ void next() {
        slot = slot == kItems - 1 ? 0 : slot + 1;
        parity ^= 1;
    }
};

#endif

}  // namespace dsv4::sparse_attention::prefill_kernel
