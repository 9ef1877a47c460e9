// The expert that every token passes: gate and up in one product, down in a second.
#include <algorithm>

#include "gemm/block_scale.h"
#include "gemm/problem.h"
#include "op_table.h"

namespace dsv4::shared_expert {
namespace {

using namespace table::shared_expert;

// What lies between the products comes first in the workspace.
size_t inner_bytes(const Call& call) {
    const Dsv4Tensor& x = call.in(in::x);
    const size_t bytes = size_t(x.shape[0]) * call.integer(attr::width) * (x.dtype == DSV4_F32 ? 4 : 2);
    return (bytes + 255) / 256 * 256;
}

gemm::Problem product(const Call& call, int weight, int scale) {
    const Dsv4Tensor& x = call.in(in::x);
    gemm::Problem p = {};
    p.weight_format = gemm::Weight::kE4M3;
    p.weight = call.in(weight).data;
    p.scale = data<const uint8_t>(call.in(scale));
    p.groups = 1;
    p.rows = static_cast<int>(call.in(weight).shape[0]);
    p.depth = static_cast<int>(call.in(weight).shape[1]);
    p.x_dtype = x.dtype;
    p.x_row_stride = p.depth;
    p.act = call.is(attr::act, "none") ? gemm::Act::kNone : gemm::Act::kAct8;
    p.tokens = static_cast<int>(x.shape[0]);
    return p;
}

gemm::Problem up(const Call& call, void* inner) {
    gemm::Problem p = product(call, in::w13, in::w13_scale);
    p.x = call.in(in::x).data;
    p.epilogue = gemm::Epilogue::kSwiglu;
    p.swiglu_limit = call.real(attr::swiglu_limit);
    p.out = inner;
    p.out_dtype = p.x_dtype;
    p.out_row_stride = p.rows / 2;
    return p;
}

gemm::Problem down(const Call& call, void* inner) {
    gemm::Problem p = product(call, in::w2, in::w2_scale);
    p.x = inner;
    p.out = call.out(out::out).data;
    p.out_dtype = call.out(out::out).dtype;
    p.out_row_stride = p.rows;
    return p;
}

void check(const Call& call) {
    const Dsv4Tensor& w13 = call.in(in::w13);
    const Dsv4Tensor& w2 = call.in(in::w2);
    const int64_t width = call.integer(attr::width), hidden = call.in(in::x).shape[1];
    require_dense(call.in(in::x), "x");
    require_dense(w13, "w13");
    require_dense(w2, "w2");
    require_dense(call.out(out::out), "out");
    DSV4_REQUIRE(w13.shape[0] == 2 * width && w13.shape[1] == hidden && w2.shape[0] == hidden && w2.shape[1] == width,
                 "w13 is %lld x %lld and w2 %lld x %lld; expected %lld x %lld and %lld x %lld",
                 static_cast<long long>(w13.shape[0]), static_cast<long long>(w13.shape[1]),
                 static_cast<long long>(w2.shape[0]), static_cast<long long>(w2.shape[1]),
                 static_cast<long long>(2 * width), static_cast<long long>(hidden), static_cast<long long>(hidden),
                 static_cast<long long>(width));
    gemm::require_block_scale(call.in(in::w13_scale), w13, "w13_scale");
    gemm::require_block_scale(call.in(in::w2_scale), w2, "w2_scale");
}

// One product is done with its workspace before the other begins.
size_t workspace(const Call& call) {
    return inner_bytes(call) + std::max(gemm::workspace(up(call, nullptr)), gemm::workspace(down(call, nullptr)));
}

size_t bound(const Call& largest) {
    return inner_bytes(largest) +
           std::max(gemm::workspace_bound(up(largest, nullptr)), gemm::workspace_bound(down(largest, nullptr)));
}

void launch(const Call& call, void* workspace, cudaStream_t stream) {
    check(call);
    void* rest = static_cast<char*>(workspace) + inner_bytes(call);
    gemm::run(up(call, workspace), rest, stream);
    gemm::run(down(call, workspace), rest, stream);
}

const Registration registration("shared_expert", workspace, launch, bound);

}  // namespace
}  // namespace dsv4::shared_expert
