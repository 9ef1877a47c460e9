// Takes a call of sparse_attention apart and shares its token rows out: decode rows to `decode`, prefill
// rows to `prefill`; what neither can do goes to `generic`.
#include <algorithm>
#include <bit>

#include "op_table.h"
#include "sparse_attention/sparse_attention.h"

namespace dsv4::sparse_attention {
namespace {

using namespace table::sparse_attention;

Cache cache(const Call& call, int table, int pool, int64_t layer_row, const EntryLayout& entry) {
    const Pool pages = Pool::of(call.in(pool));
    const int64_t bytes = int64_t(entry.per_page) * (entry.row_bytes + entry.scale_bytes);
    DSV4_REQUIRE(entry.per_page > 0, "%d entries per page; expected at least one", entry.per_page);
    DSV4_REQUIRE(bytes <= pages.page_bytes, "pages of %lld bytes; %d entries need %lld",
                 static_cast<long long>(pages.page_bytes), entry.per_page, static_cast<long long>(bytes));
    const unsigned count = entry.per_page;
    const int shift = std::has_single_bit(count) ? std::countr_zero(count) : -1;
    return {BlockTable::of(call.in(table), layer_row), pages, entry, shift};
}

void read_caches(const Call& call, Params& p) {
    const auto layout = [&](int attr) {
        return kv_layout(p.format, p.dim, 2 * p.rope_pairs, static_cast<int>(call.integer(attr)));
    };
    p.swa = cache(call, in::swa_block_table, in::swa_pool, call.integer(attr::swa_layer_row),
                  layout(attr::swa_entries_per_page));
    p.window_pages = static_cast<int>(call.integer(attr::swa_window_pages));
    DSV4_REQUIRE(p.window_pages > 0, "%d window pages; expected at least one", p.window_pages);
    p.ring_factor = static_cast<uint32_t>(ceil_div(int64_t(1) << 32, p.window_pages));
    if (p.ratio == 0) return;
    DSV4_REQUIRE(call.has(in::block_table) && call.has(in::pool), "ratio %d without compressed entries", p.ratio);
    p.compressed = cache(call, in::block_table, in::pool, call.integer(attr::layer_row),
                         layout(attr::entries_per_page));
    p.picked = call.has(in::topk);
    if (!p.picked) return;
    require_dense(call.in(in::topk), "topk");
    p.topk = data<const int32_t>(call.in(in::topk));
    p.picks = static_cast<int>(call.in(in::topk).shape[1]);
}

Params params(const Call& call) {
    const Dsv4Tensor& q = call.in(in::q);
    require_dense(q, "q");
    require_dense(call.in(in::kv), "kv");
    require_dense(call.out(out::out), "out");
    Params p{};
    p.q = q.data;
    p.kv = call.in(in::kv).data;
    p.sinks = data<const float>(call.in(in::sinks));
    p.inv_freq = data<const float>(call.in(in::inv_freq));
    p.out = call.out(out::out).data;
    p.step = Step::of(call.in(in::positions), call.in(in::seq_ids), call.in(in::table_rows), call.in(in::query_start),
                      call.in(in::seq_lens));
    p.tokens = static_cast<int>(q.shape[0]);
    p.heads = static_cast<int>(q.shape[1]);
    p.dim = static_cast<int>(q.shape[2]);
    p.rope_pairs = static_cast<int>(call.in(in::inv_freq).shape[0]);
    DSV4_REQUIRE(p.dim % 8 == 0 && 2 * p.rope_pairs <= p.dim,
                 "%d channels, %d of them rotated; expected a multiple of 8 and no more rotated than there are",
                 p.dim, 2 * p.rope_pairs);
    p.num_decodes = static_cast<int>(std::min(call.in(in::decode_carrier).shape[0], q.shape[0]));
    p.window = static_cast<int>(call.integer(attr::window));
    p.ratio = static_cast<int>(call.integer(attr::ratio));
    p.sm_scale = call.real(attr::sm_scale);
    p.format = format_of(call, attr::format);
    p.bf16 = q.dtype == DSV4_BF16;
    p.round_probs = call.is(attr::prob_dtype, "BF16");
    p.inverse_rope = call.integer(attr::inverse_rope) != 0;
    read_caches(call, p);
    return p;
}

// Decode rows that fill the device without splitting their keys are as good as prefill rows. Its kernel is
// the faster one for each key, given 64 heads.
bool fill_device(const Params& p) {
    return p.heads >= 64 && int64_t(p.num_decodes) * (p.heads / 64) * 4 >= int64_t(device().multiprocessors) * 3;
}

// The rows that are not left to `prefill`.
Rows own_rows(const Params& p) {
    if (!prefill_fits(p)) return {0, p.tokens};
    return {0, fill_device(p) ? 0 : p.num_decodes};
}

// The call as `prefill` sees it, which takes the rows from `num_decodes` on.
Params rest_of(Params p, Rows own) {
    p.num_decodes = own.count;
    return p;
}

size_t workspace(const Call& call) {
    const Params p = params(call);
    if (p.tokens == 0 || p.heads == 0) return 0;
    const Rows own = own_rows(p);
    const size_t few = own.count && decode_fits(p) ? decode_workspace(p, own) : 0;
    const size_t many = own.count < p.tokens ? prefill_workspace(rest_of(p, own)) : 0;
    return std::max(few, many);  // one runs after the other
}

size_t bound(const Call& largest) {
    const Params p = params(largest);
    return decode_fits(p) ? decode_workspace_bound(p) : 0;  // `prefill` needs none
}

void launch(const Call& call, void* workspace, cudaStream_t stream) {
    const Params p = params(call);
    if (p.tokens == 0 || p.heads == 0) return;
    const Rows own = own_rows(p);
    if (own.count && decode_fits(p)) {
        decode(p, own, workspace, stream);
    } else if (own.count) {
        generic(p, own, stream);
    }
    if (own.count < p.tokens) prefill(rest_of(p, own), workspace, stream);
}

const Registration registration("sparse_attention", workspace, launch, bound);

}  // namespace
}  // namespace dsv4::sparse_attention
