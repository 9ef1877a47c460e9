// x @ weight^T: takes a call apart for gemm::run.
#include "gemm/block_scale.h"
#include "gemm/problem.h"
#include "op_table.h"

namespace dsv4::linear {
namespace {

using namespace table::linear;

gemm::Problem problem(const Call& call) {
    const Dsv4Tensor& x = call.in(in::x);
    const Dsv4Tensor& weight = call.in(in::weight);
    gemm::Problem p = {};
    p.weight_format = call.is(attr::weight_format, "fp8") ? gemm::Weight::kE4M3 : gemm::Weight::kBf16;
    p.weight = weight.data;
    p.scale = data<const uint8_t>(call.in(in::scale));
    p.groups = 1;
    p.rows = static_cast<int>(weight.shape[0]);
    p.depth = static_cast<int>(weight.shape[1]);
    p.x = x.data;
    p.x_dtype = x.dtype;
    p.x_row_stride = p.depth;
    p.act = call.is(attr::act, "none") ? gemm::Act::kNone : gemm::Act::kAct8;
    int64_t tokens = 1;
    for (int i = 0; i < x.rank - 1; ++i) tokens *= x.shape[i];
    DSV4_REQUIRE(tokens < int64_t(1) << 31, "%lld rows of x are too many", static_cast<long long>(tokens));
    p.tokens = static_cast<int>(tokens);
    p.out = call.out(out::out).data;
    p.out_dtype = call.out(out::out).dtype;
    p.out_row_stride = p.rows;
    return p;
}

void check(const Call& call) {
    const Dsv4Tensor& x = call.in(in::x);
    const Dsv4Tensor& weight = call.in(in::weight);
    require_dense(x, "x");
    require_dense(weight, "weight");
    DSV4_REQUIRE(x.shape[x.rank - 1] == weight.shape[1], "x has %lld inputs; expected %lld, as the weight",
                 static_cast<long long>(x.shape[x.rank - 1]), static_cast<long long>(weight.shape[1]));
    if (call.is(attr::weight_format, "fp8")) gemm::require_block_scale(call.in(in::scale), weight, "scale");
    require_dense(call.out(out::out), "out");
}

size_t workspace(const Call& call) { return gemm::workspace(problem(call)); }

size_t bound(const Call& largest) { return gemm::workspace_bound(problem(largest)); }

void launch(const Call& call, void* workspace, cudaStream_t stream) {
    check(call);
    gemm::run(problem(call), workspace, stream);
}

const Registration registration("linear", workspace, launch, bound);

}  // namespace
}  // namespace dsv4::linear
