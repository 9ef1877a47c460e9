// One launch: the first blocks take the window keys, a warp each, because they have more steps to make; the
// others one or two query heads a warp.
#include "common/dependent_launch.cuh"
#include "op_table.h"
#include "qkv_rope_insert/heads.cuh"

namespace dsv4::qkv_rope_insert {
namespace {

template <class T, int kChunks, int kHeads>
__global__ void __launch_bounds__(kThreads) kernel(Params p) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (blockIdx.x < p.key_blocks) {
        const int token = blockIdx.x * kWarps + warp;
        if (token < p.tokens) window_key<T, kChunks>(p, token, lane);
        return;
    }
    const int unit = (blockIdx.x - p.key_blocks) * kWarps + warp, units = p.heads / kHeads;
    const int token = unit / units;
    if (token < p.tokens) query_heads<T, kChunks, kHeads>(p, token, int64_t(unit) * kHeads, lane);
}

template <class T, int kChunks, int kHeads>
void start(const Params& p, cudaStream_t stream) {
    const int blocks = p.key_blocks + ceil_div(int64_t(p.tokens) * (p.heads / kHeads), kWarps);
    launch_dependent("qkv_rope_insert", kernel<T, kChunks, kHeads>, blocks, kThreads, 0, stream, p);
}

// Two heads a warp once there is more than enough work for every multiprocessor.
template <class T, int kChunks>
void start_heads(const Params& p, cudaStream_t stream) {
    const bool two = p.heads % 2 == 0 && int64_t(p.tokens) * p.heads > 128 * int64_t(device().multiprocessors);
    if (two) return start<T, kChunks, 2>(p, stream);
    start<T, kChunks, 1>(p, stream);
}

template <class T>
void start_rows(const Params& p, cudaStream_t stream) {
    if (p.head_dim <= kChunk) return start_heads<T, 1>(p, stream);
    start_heads<T, 2>(p, stream);
}

void check_sizes(const Params& p) {
    DSV4_REQUIRE(p.head_dim % 64 == 0 && p.head_dim <= 2 * kChunk, "D is %d; expected a multiple of 64, at most %d",
                 p.head_dim, 2 * kChunk);
    DSV4_REQUIRE(p.pairs <= 32 && p.pairs % 4 == 0 && 2 * p.pairs <= p.head_dim,
                 "inv_freq has %d pairs; expected a multiple of 4, at most 32 and at most half a head", p.pairs);
    for (const void* address : {p.q, p.kv, static_cast<const void*>(p.q_out), static_cast<const void*>(p.kv_out)}) {
        DSV4_REQUIRE(aligned(address, 16), "%p is not 16-byte aligned, as q and kv must be", address);
    }
    require_pages(p.pool, p.entry);
}

Params params(const Call& call) {
    using namespace table::qkv_rope_insert;
    for (const int index : {in::q, in::kv, in::inv_freq, in::positions, in::seq_ids, in::table_rows,
                            in::slot_mapping}) {
        require_dense(call.in(index), "q, kv, inv_freq or a list of the step");
    }
    require_dense(call.out(out::q), "q of the outputs");
    require_dense(call.out(out::kv), "kv of the outputs");
    Params p{};
    p.q = call.in(in::q).data;
    p.kv = call.in(in::kv).data;
    p.q_out = call.out(out::q).data;
    p.kv_out = call.out(out::kv).data;
    p.inv_freq = data<const float>(call.in(in::inv_freq));
    p.positions = data<const int32_t>(call.in(in::positions));
    p.seq_ids = data<const int32_t>(call.in(in::seq_ids));
    p.table_rows = data<const int32_t>(call.in(in::table_rows));
    p.slots = data<const int32_t>(call.in(in::slot_mapping));
    p.tokens = call.in(in::kv).shape[0];
    p.seqs = call.in(in::table_rows).shape[0];
    p.key_blocks = ceil_div(p.tokens, kWarps);
    p.heads = call.integer(attr::num_heads);
    p.head_dim = call.integer(attr::D);
    p.pairs = call.in(in::inv_freq).shape[0];
    p.window_pages = call.integer(attr::window_pages);
    p.eps = call.real(attr::eps);
    p.per_channel = 1.0f / p.head_dim;
    p.format = format_of(call, attr::format);
    p.entry = kv_layout(p.format, p.head_dim, 2 * p.pairs, call.integer(attr::entries_per_page));
    p.table = BlockTable::of(call.in(in::block_table), call.integer(attr::layer_row));
    p.pool = Pool::of(call.in(in::pool));
    check_sizes(p);
    return p;
}

void launch(const Call& call, void*, cudaStream_t stream) {
    if (call.in(table::qkv_rope_insert::in::kv).shape[0] == 0) return;
    const Params p = params(call);
    if (call.in(table::qkv_rope_insert::in::q).dtype == DSV4_F32) {
        start_rows<float>(p, stream);
    } else {
        start_rows<bf16>(p, stream);
    }
}

const Registration registration("qkv_rope_insert", no_workspace, launch);

}  // namespace
}  // namespace dsv4::qkv_rope_insert
