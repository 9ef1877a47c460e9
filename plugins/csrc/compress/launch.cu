#include "compress/compress.h"
#include "op_table.h"

namespace dsv4::compress {
namespace {

void check_sizes(const Params& p) {
    DSV4_REQUIRE(p.pairs <= 32 && p.pairs % 2 == 0 && 2 * p.pairs <= p.width,
                 "inv_freq has %d pairs; expected an even number, at most 32 and at most half the width", p.pairs);
    DSV4_REQUIRE(!p.hadamard || p.width == 128, "a transformed entry has %d channels; expected 128", p.width);
    DSV4_REQUIRE(p.state_window_pages > 0, "the state window has %d pages; expected at least one",
                 p.state_window_pages);
    DSV4_REQUIRE(aligned(p.kv_gate, 16) && aligned(p.ape, 16) && aligned(p.norm_weight, 8),
                 "kv_gate and ape must be 16-byte aligned");
    require_pages(p.pool, p.entry);
    require_pages(p.state_pool, {8 * p.overlap * p.width, 0, p.state_per_page});
}

Params params(const Call& call) {
    using namespace table::compress;
    for (const int index : {in::kv_gate, in::ape, in::norm_weight, in::inv_freq, in::positions, in::seq_ids,
                            in::table_rows, in::query_start, in::seq_lens, in::state_slot_mapping,
                            in::slot_mapping}) {
        require_dense(call.in(index), "kv_gate, ape, norm_weight, inv_freq or a list of the step");
    }
    const auto list = [&](int index) { return data<const int32_t>(call.in(index)); };
    const int64_t layer_row = call.integer(attr::layer_row);
    Params p{};
    p.kv_gate = data<const float>(call.in(in::kv_gate));
    p.ape = data<const float>(call.in(in::ape));
    p.norm_weight = data<const bf16>(call.in(in::norm_weight));
    p.inv_freq = data<const float>(call.in(in::inv_freq));
    p.step = Step::of(call.in(in::positions), call.in(in::seq_ids), call.in(in::table_rows), call.in(in::query_start),
                      call.in(in::seq_lens));
    p.state_slots = list(in::state_slot_mapping);
    p.slots = list(in::slot_mapping);
    p.state_table = BlockTable::of(call.in(in::state_block_table), layer_row);
    p.state_pool = Pool::of(call.in(in::state_pool));
    p.table = BlockTable::of(call.in(in::block_table), layer_row);
    p.pool = Pool::of(call.in(in::pool));
    p.ratio = call.integer(attr::ratio);
    p.overlap = call.integer(attr::overlap);
    p.width = call.integer(attr::width);
    p.pairs = call.in(in::inv_freq).shape[0];
    p.hadamard = call.integer(attr::hadamard);
    p.bf16_act = call.is(attr::act_dtype, "BF16");
    p.format = format_of(call, attr::format);
    p.eps = call.real(attr::eps);
    const int per_page = call.integer(attr::entries_per_page);
    p.entry = p.hadamard ? key_layout(p.format, p.width, per_page)
                         : kv_layout(p.format, p.width, 2 * p.pairs, per_page);
    p.state_per_page = call.integer(attr::state_entries_per_page);
    p.state_window_pages = call.integer(attr::state_window_pages);
    check_sizes(p);
    return p;
}

void launch(const Call& call, void*, cudaStream_t stream) {
    if (call.in(table::compress::in::positions).shape[0] == 0) return;
    const Params p = params(call);
    if (p.overlap == 2) return overlapping(p, stream);
    DSV4_REQUIRE(p.overlap == 1, "overlap is %d; expected 1 or 2", p.overlap);
    disjoint(p, stream);
}

const Registration registration("compress", no_workspace, launch);

}  // namespace
}  // namespace dsv4::compress
