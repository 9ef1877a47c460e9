// Takes a call apart. The workspace holds a changed copy of the logits, if any row has rules, and top tokens.
#include "op_table.h"
#include "sample/launch.h"
#include "common/op.h"

namespace dsv4::sample {
namespace {

using namespace table::sample;

bool has_rules(const Call& call) {
    for (int input : {in::masks, in::bias_ids, in::seen_ids, in::penalty_ids}) {
        if (call.in(input).shape[0] > 0) return true;
    }
    return false;
}

size_t changed_bytes(const Call& call) {
    return has_rules(call) ? (elements(call.in(in::logits)) * sizeof(float) + 255) / 256 * 256 : 0;
}

size_t workspace(const Call& call) { return changed_bytes(call) + elements(call.out(out::top_ids)) * 8; }

List list_of(const Call& call, int start, int ids, int values) {
    return {data<const int32_t>(call.in(start)), data<const int32_t>(call.in(ids)),
            values < 0 ? nullptr : data<const float>(call.in(values)), static_cast<int>(call.in(ids).shape[0])};
}

void check(const Call& call) {
    for (int input = in::logits; input <= in::penalty_values; ++input) require_dense(call.in(input), "an input of sample");
    for (int output = out::token; output <= out::top_logprobs; ++output) {
        require_dense(call.out(output), "an output of sample");
    }
    const Dsv4Tensor& logits = call.in(in::logits);
    const long long rows = logits.shape[0], vocab = logits.shape[1];
    DSV4_REQUIRE(vocab > 0 && vocab < 1 << 30, "logits have %lld columns; expected 1 to 2^30", vocab);
    for (int input : {in::bias_start, in::seen_start, in::penalty_start}) {
        const long long starts = call.in(input).shape[0];
        DSV4_REQUIRE(starts == rows + 1, "a list has %lld starts; expected %lld, one more than rows", starts, rows + 1);
    }
    const Dsv4Tensor& masks = call.in(in::masks);
    const long long words = masks.shape[1];
    DSV4_REQUIRE(masks.shape[0] == 0 || words == (vocab + 31) / 32, "masks have %lld words; expected %lld", words,
                 (vocab + 31) / 32);
}

Params params(const Call& call, void* workspace) {
    const Dsv4Tensor &logits = call.in(in::logits), &masks = call.in(in::masks);
    Params p{};
    p.logits = data<const float>(logits);
    p.scales = data<const float>(call.in(in::scales));
    p.doubles = data<const int32_t>(call.in(in::doubles));
    p.limits = data<const int32_t>(call.in(in::limits));
    p.masks = data<const uint32_t>(masks);
    p.bias = list_of(call, in::bias_start, in::bias_ids, in::bias_values);
    p.seen = list_of(call, in::seen_start, in::seen_ids, -1);
    p.penalty = list_of(call, in::penalty_start, in::penalty_ids, in::penalty_values);
    p.token = data<int32_t>(call.out(out::token));
    p.logprob = data<float>(call.out(out::logprob));
    p.status = data<int32_t>(call.out(out::status));
    p.top_ids = data<int32_t>(call.out(out::top_ids));
    p.top_logprobs = data<float>(call.out(out::top_logprobs));
    p.changed = has_rules(call) ? static_cast<float*>(workspace) : nullptr;
    p.candidates = reinterpret_cast<unsigned long long*>(static_cast<char*>(workspace) + changed_bytes(call));
    p.rows = logits.shape[0];
    p.vocab = static_cast<int>(logits.shape[1]);
    p.num_top = static_cast<int>(call.integer(attr::num_top));
    p.masked = static_cast<int>(masks.shape[0]);
    p.words = static_cast<int>(masks.shape[1]);
    return p;
}

void launch(const Call& call, void* workspace, cudaStream_t stream) {
    if (call.in(in::logits).shape[0] == 0) return;
    check(call);
    run(params(call, workspace), stream);
}

const Registration registration("sample", workspace, launch, workspace);

}  // namespace
}  // namespace dsv4::sample
