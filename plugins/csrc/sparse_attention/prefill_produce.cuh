// The producer warpgroups: q of each item, and its keys tile by tile.
#pragma once

#include "common/rope.cuh"
#include "sparse_attention/prefill_gather.cuh"

namespace dsv4::sparse_attention::prefill_kernel {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

struct Producer {
    const Params& p;
    const Work& work;
    Shared& shared;
    int thread, row, part;  // this thread's row of q and of key tiles

    // Copies start; the caller waits for them.
    __device__ void bring_q(const Item& item) const {
        const int query = row / work.query_rows, head = item.head + row % work.query_rows;
        const uint32_t tile = shared_address(shared.q);
        if (query < work.queries && item.alive >> query & 1 && head < p.heads) {
            const int64_t source = int64_t(item.token + query) * p.heads + head;
            copy_row(tile, row, part, static_cast<const uint8_t*>(p.q) + source * (kDim * 2));
        } else {
            clear_row(tile, row, part);
        }
    }

    __device__ void bring_keys(uint32_t tile, const Place& key, const Codes& codes) const {
        if (key.coded()) {
            copy_rotated(tile, row, part, key.row);
            store_codes(tile, row, part, codes);
        } else if (key.any()) {
            copy_row(tile, row, part, key.row);
        } else {
            clear_row(tile, row, part);
        }
    }

    __device__ void tell_item(Item& told, int token, int head, int alive) const {
        const int query = thread / kRopePairs, pair = thread % kRopePairs;
        if (thread == 0) {
            told.token = token;
            told.head = head;
            told.alive = alive;
        }
        if (p.inverse_rope && alive >> query & 1) {
            const float2 angle = rope_angle(p.step.positions[token + query], p.inv_freq[pair]);
            told.turn[query * kRopePairs + pair] = {angle.x, -angle.y};
        }
    }

    __device__ void tell_tile(Tile& told, const Plan& plan, int tile, bool valid, bool last) const {
        uint32_t bits = __ballot_sync(kLanes, valid) & 0x11111111u;  // one lane of each row's four
        bits = (bits | bits >> 3) & 0x03030303u;
        bits = (bits | bits >> 6) & 0x000F000Fu;
        bits |= bits >> 12;
        if (thread % 32 == 0) told.valid[thread / 32] = bits;
        if (thread < 2 * kMaxQueries) {
            const int query = thread / 2, half = thread % 2, first = tile * kKeys + half * 32;
            told.seen[query][half] = slot_bits(plan.window[query], first) | slot_bits(plan.entries[query], first);
        }
        if (thread == 0) told.last = last;
    }

    __device__ void run() {
        TilePlace tiles;
        ItemPlace place;
        int round = 0;
        for (int index = blockIdx.x; index < work.items; index += gridDim.x) {
            Plan& plan = shared.plan[round];
            round ^= 1;
            const int token = p.num_decodes + index / work.head_blocks * work.queries;
            if (thread < 32) make_plan(p, work, token, plan);
            sync_threads<kGather, kProducers>();
            if (plan.alive == 0) continue;
            Item& item = shared.item[place.slot];
            tell_item(item, token, index % work.head_blocks * kRows, plan.alive);
            sync_threads<kGather, kProducers>();
            produce(plan, item, place.parity, tiles);
            place.next();
        }
        if (thread == 0) shared.item[place.slot].alive = 0;
        barrier_wait(&shared.q_empty, place.parity ^ 1);
        __syncwarp();
        if (thread % 32 == 0) barrier_arrive(&shared.q_full);
    }

    // Finding a key takes long: each of the four threads of a row finds it for one of four tiles, from
    // `tile` on. Sets a bit of `present` for each of these that has any key.
    __device__ Place find_ahead(const Plan& plan, int tile, int& present) const {
        const Place found = find_place(p, work, plan, (tile + part) * kKeys + row);
        present = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            present |= sync_any<kGather, kProducers>(part == i && found.any()) << i;
        }
        return found;
    }

    __device__ void produce(const Plan& plan, const Item& item, int parity, TilePlace& tiles) {
        const int end = (plan.slots + kKeys - 1) / kKeys;
        int present;
        Place found = find_ahead(plan, 0, present);
        Place key = place_of(found, 0);
        Codes codes;
        if (key.coded()) load_codes(codes, key, part);
        for (int tile = 0; tile < end; tiles.next()) {
            // meanwhile look for the next tile that has any key
            int next = tile + 1;
            for (; next < end; ++next) {
                if (next % 4 == 0) found = find_ahead(plan, next, present);
                if (present >> next % 4 & 1) break;
            }
            Place next_key{};
            if (next < end) next_key = place_of(found, next % 4);
            if (tile == 0) {
                barrier_wait(&shared.q_empty, parity ^ 1);
                bring_q(item);
            }
            const int stage = tiles.stage();
            barrier_wait(&shared.empty[stage], tiles.parity() ^ 1);
            bring_keys(shared_address(shared.keys[stage]), key, codes);
            tell_tile(shared.tile[stage], plan, tile, key.any(), next >= end);
            wait_copies();
            fence_async_proxy();
            __syncwarp();
            if (thread % 32 == 0) {
                if (tile == 0) barrier_arrive(&shared.q_full);
                barrier_arrive(&shared.full[stage]);
            }
            tile = next;
            key = next_key;
            // not sooner: the fence would wait for them
            if (key.coded()) load_codes(codes, key, part);
        }
    }
};

#endif

}  // namespace dsv4::sparse_attention::prefill_kernel
