// Takes a call apart and runs its passes: decodes first, then the tokens of prompts, which share keys.
#include <algorithm>

#include "index_topk/index_topk.h"
#include "op_table.h"

namespace dsv4::index_topk {
namespace {

using namespace table::index_topk;

constexpr int64_t kPassBytes = 256 << 20;   // of scores, unless one row has more
constexpr int kRows = 12;                   // passes have multiples of it: whole blocks of tokens

// Scores of one row of a pass, in bytes; rows start at multiples of 128.
int64_t row_bytes(const Call& call) {
    const int64_t entries = call.in(in::block_table).shape[2] * call.integer(attr::entries_per_page);
    const int64_t bytes = entries * (call.is(attr::score_dtype, "F32") ? 4 : 2);
    return (bytes + 127) / 128 * 128;
}

bool chooses(const Call& call) {
    return call.in(in::block_table).shape[2] * call.integer(attr::entries_per_page) > call.integer(attr::topk);
}

// Token rows of one pass.
int64_t pass_rows(const Call& call) {
    const int64_t rows = std::max<int64_t>(kRows, kPassBytes / std::max<int64_t>(1, row_bytes(call)));
    return std::min(call.in(in::q).shape[0], rows / kRows * kRows);
}

size_t workspace(const Call& call) { return chooses(call) ? pass_rows(call) * row_bytes(call) : 0; }

// Fewer columns make shorter rows, of which a pass has more.
size_t bound(const Call& largest) {
    if (!chooses(largest)) return 0;
    const int64_t row = row_bytes(largest);
    return std::min(largest.in(in::q).shape[0] * row, std::max(kPassBytes, kRows * row));
}

void check(const Call& call, const Params& p) {
    const Dsv4Tensor& q = call.in(in::q);
    for (int input : {in::q, in::weights, in::positions, in::seq_ids, in::table_rows, in::query_start, in::seq_lens}) {
        require_dense(call.in(input), "an input of index_topk");
    }
    if (call.has(in::q_scale)) require_dense(call.in(in::q_scale), "q_scale");
    require_dense(call.out(out::topk), "topk");
    const int head_dim = call.integer(attr::head_dim);
    DSV4_REQUIRE(head_dim == kHeadDim, "head_dim is %d; expected %d", head_dim, kHeadDim);
    DSV4_REQUIRE(p.topk > 0 && p.ratio > 0, "topk %d and ratio %d; expected at least 1", p.topk, p.ratio);
    require_pages(p.pool, p.entry);
    const int columns = p.format == Format::kFp4 ? kHeadDim / 2 : kHeadDim;
    DSV4_REQUIRE(q.rank == 3 && q.shape[2] == columns, "a row of q has %lld elements; expected %d",
                 static_cast<long long>(q.shape[2]), columns);
}

Params params(const Call& call, void* scores) {
    Params p{};
    p.q = call.in(in::q).data;
    p.q_scale = call.has(in::q_scale) ? data<const uint8_t>(call.in(in::q_scale)) : nullptr;
    p.weights = data<const float>(call.in(in::weights));
    p.step = Step::of(call.in(in::positions), call.in(in::seq_ids), call.in(in::table_rows), call.in(in::query_start),
                      call.in(in::seq_lens));
    p.table = BlockTable::of(call.in(in::block_table), call.integer(attr::layer_row));
    p.pool = Pool::of(call.in(in::pool));
    p.format = format_of(call, attr::format);
    p.entry = key_layout(p.format, kHeadDim, call.integer(attr::entries_per_page));
    p.out = data<int32_t>(call.out(out::topk));
    p.topk = call.integer(attr::topk);
    p.ratio = call.integer(attr::ratio);
    p.num_heads = call.in(in::q).shape[1];
    p.rounds = call.is(attr::score_dtype, "BF16");
    p.scores = scores;
    p.stride = row_bytes(call) / (p.rounds ? 2 : 4);
    p.width = std::min<int64_t>(p.stride, int64_t(p.table.columns) * p.entry.per_page);
    return p;
}

// Token rows `begin .. end`; with `share` neighbours are mostly of one sequence.
void run(Params p, int begin, int end, bool share, int rows, cudaStream_t stream) {
    for (p.row_begin = begin; p.row_begin < end; p.row_begin = p.row_end) {
        p.row_end = std::min(end, p.row_begin + rows);
        if (hopper_scores_fit(p)) {
            hopper_scores(p, share, stream);
        } else if (tensor_scores_fit(p)) {
            tensor_scores(p, share, stream);
        } else {
            plain_scores(p, stream);
        }
        select(p, true, stream);
    }
}

void launch(const Call& call, void* scores, cudaStream_t stream) {
    Params p = params(call, scores);
    check(call, p);
    const int tokens = p.step.num_tokens;
    if (tokens == 0) return;
    if (!chooses(call)) {   // no row can be long enough for a choice
        p.row_end = tokens;
        select(p, false, stream);
        return;
    }
    const int rows = pass_rows(call);
    const int decodes = std::min<int64_t>(call.in(in::decode_carrier).shape[0], tokens);
    run(p, 0, decodes, false, rows, stream);
    run(p, decodes, tokens, true, rows, stream);
}

const Registration registration("index_topk", workspace, launch, bound);

}  // namespace
}  // namespace dsv4::index_topk
