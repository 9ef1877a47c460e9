// Groups of heads by their own rows of one weight: takes a call apart for gemm::run.
#include "gemm/block_scale.h"
#include "gemm/problem.h"
#include "op_table.h"

namespace dsv4::grouped_linear {
namespace {

using namespace table::grouped_linear;

gemm::Problem problem(const Call& call) {
    const Dsv4Tensor& x = call.in(in::x);
    const Dsv4Tensor& weight = call.in(in::weight);
    const int groups = static_cast<int>(call.integer(attr::groups));
    gemm::Problem p = {};
    p.weight_format = gemm::Weight::kE4M3;
    p.weight = weight.data;
    p.scale = data<const uint8_t>(call.in(in::scale));
    p.groups = groups;
    p.rows = static_cast<int>(weight.shape[0]) / groups;
    p.depth = static_cast<int>(weight.shape[1]);
    p.x = x.data;
    p.x_dtype = x.dtype;
    p.x_row_stride = int64_t(groups) * p.depth;
    p.x_group_stride = p.depth;
    if (call.is(attr::act, "act8_128")) {
        p.act = gemm::Act::kCodes;
        p.x_scale = data<const uint8_t>(call.in(in::x_scale));
    }
    p.tokens = static_cast<int>(x.shape[0]);
    p.out = call.out(out::out).data;
    p.out_dtype = call.out(out::out).dtype;
    p.out_row_stride = weight.shape[0];
    p.out_group_stride = p.rows;
    return p;
}

void check(const Call& call) {
    const Dsv4Tensor& x = call.in(in::x);
    const Dsv4Tensor& weight = call.in(in::weight);
    const int64_t groups = call.integer(attr::groups), width = x.shape[1] * x.shape[2];
    require_dense(x, "x");
    require_dense(weight, "weight");
    gemm::require_block_scale(call.in(in::scale), weight, "scale");
    require_dense(call.out(out::out), "out");
    DSV4_REQUIRE(groups > 0 && width == groups * weight.shape[1],
                 "%lld heads of %lld are %lld inputs; expected %lld groups of %lld", static_cast<long long>(x.shape[1]),
                 static_cast<long long>(x.shape[2]), static_cast<long long>(width), static_cast<long long>(groups),
                 static_cast<long long>(weight.shape[1]));
    DSV4_REQUIRE(weight.shape[0] % (groups * (groups > 1 ? 128 : 1)) == 0,
                 "%lld rows in %lld groups; expected a multiple of 128 in each, as one scale has",
                 static_cast<long long>(weight.shape[0]), static_cast<long long>(groups));
    if (call.is(attr::act, "act8_128")) {
        require_dense(call.in(in::x_scale), "x_scale");
        DSV4_REQUIRE(x.dtype == DSV4_F8_E4M3, "x has dtype %d; with act8_128 expected e4m3 (%d)", x.dtype,
                     DSV4_F8_E4M3);
    }
}

size_t workspace(const Call& call) { return gemm::workspace(problem(call)); }

size_t bound(const Call& largest) { return gemm::workspace_bound(problem(largest)); }

void launch(const Call& call, void* workspace, cudaStream_t stream) {
    check(call);
    gemm::run(problem(call), workspace, stream);
}

const Registration registration("grouped_linear", workspace, launch, bound);

}  // namespace
}  // namespace dsv4::grouped_linear
