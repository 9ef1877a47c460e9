// The router: logits as one product with the gate, then a pick per token.
#include "gemm/problem.h"
#include "op_table.h"
#include "router/router.h"

namespace dsv4::router {
namespace {

using namespace table::router;

Params params(const Call& call) {
    const Dsv4Tensor& x = call.in(in::x);
    const Dsv4Tensor& gate = call.in(in::gate);
    const Dsv4Tensor& table = call.in(in::tid2eid);
    const bool scored = call.is(attr::by, "score");
    Params p = {};
    p.x = x.data;
    p.gate = gate.data;
    p.bias = scored ? data<const float>(call.in(in::bias)) : nullptr;
    p.tid2eid = data<const int32_t>(table);
    p.token_ids = data<const int32_t>(call.in(in::token_ids));
    p.vocabulary = scored ? 0 : table.shape[0];
    p.tokens = static_cast<int>(x.shape[0]);
    p.depth = static_cast<int>(x.shape[1]);
    p.experts = static_cast<int>(gate.shape[0]);
    p.picks = static_cast<int>(call.integer(attr::topk));
    p.route_scale = call.real(attr::route_scale);
    p.expert_ids = data<int32_t>(call.out(out::expert_ids));
    p.weights = data<float>(call.out(out::weights));
    return p;
}

void check(const Call& call, const Params& p) {
    for (int i : {in::x, in::gate, in::bias, in::tid2eid, in::token_ids}) {
        if (call.has(i)) require_dense(call.in(i), "an input of router");
    }
    require_dense(call.out(out::expert_ids), "expert_ids");
    require_dense(call.out(out::weights), "weights");
    DSV4_REQUIRE(p.picks >= 1 && p.picks <= kMaxPicks, "topk is %d; expected 1 to %d", p.picks, kMaxPicks);
    DSV4_REQUIRE(p.experts <= kMaxExperts, "there are %d experts; expected at most %d", p.experts, kMaxExperts);
    DSV4_REQUIRE(!p.bias || p.picks <= p.experts, "topk is %d; expected at most the %d experts", p.picks, p.experts);
}

bool takes_few(const Call& call, const Params& p) {
    return call.in(in::x).dtype == DSV4_BF16 && p.tokens <= kMaxFewTokens && p.depth % 8 == 0;
}

gemm::Problem product(const Call& call, const Params& p) {
    gemm::Problem problem = {};
    problem.weight_format = gemm::Weight::kBf16;
    problem.weight = p.gate;
    problem.groups = 1;
    problem.rows = p.experts;
    problem.depth = p.depth;
    problem.x = p.x;
    problem.x_dtype = call.in(in::x).dtype;
    problem.x_row_stride = p.depth;
    problem.act = gemm::Act::kNone;
    problem.tokens = p.tokens;
    problem.epilogue = gemm::Epilogue::kStore;
    problem.out = p.logits;
    problem.out_dtype = DSV4_F32;
    problem.out_row_stride = p.experts;
    return problem;
}

size_t logits_bytes(int64_t logits) { return (logits * sizeof(float) + 255) / 256 * 256; }

size_t logits_bytes(const Params& p, int splits) { return logits_bytes(int64_t(splits) * p.tokens * p.experts); }

size_t workspace(const Call& call) {
    const Params p = params(call);
    if (p.tokens == 0) return 0;
    if (takes_few(call, p)) return logits_bytes(p, few_splits(p.tokens, p.experts, p.depth));
    return logits_bytes(p, 1) + gemm::workspace(product(call, p));
}

size_t bound(const Call& largest) {
    const Params p = params(largest);
    return logits_bytes(few_logits_bound(p.tokens, p.experts, p.depth)) + gemm::workspace_bound(product(largest, p));
}

void launch(const Call& call, void* workspace, cudaStream_t stream) {
    Params p = params(call);
    check(call, p);
    if (p.tokens == 0) return;
    p.logits = static_cast<float*>(workspace);
    if (takes_few(call, p)) {
        DSV4_REQUIRE(aligned(p.x, 16) && aligned(p.gate, 16), "x and gate must lie at multiples of 16 bytes");
        p.splits = few_splits(p.tokens, p.experts, p.depth);
        few(p, stream);
    } else {
        p.splits = 1;
        gemm::run(product(call, p), static_cast<char*>(workspace) + logits_bytes(p, 1), stream);
    }
    pick(p, stream);
}

const Registration registration("router", workspace, launch, bound);

}  // namespace
}  // namespace dsv4::router
