// mhc_post_pre: one site is left and the next is entered.
#include "mhc/mhc.h"
#include "op_table.h"

namespace dsv4::mhc {
namespace {

void launch(const Call& call, void*, cudaStream_t stream) {
    using namespace table::mhc_post_pre;
    const Dsv4Tensor& streams = call.in(in::streams);
    Params p = stream_params(streams);
    leave_params(p, call.in(in::y), call.in(in::post), call.in(in::comb), call.out(out::streams));
    DSV4_REQUIRE(p.tokens == 0 || p.streams_out != p.streams,
                 "the streams can not be written in place");
    p.site = site_params(p, call.in(in::fn), call.in(in::base), call.in(in::scale), call.in(in::norm_weight), kMix);
    p.site.eps = call.real(attr::eps);
    p.site.hc_eps = call.real(attr::hc_eps);
    p.site.iters = static_cast<int>(call.integer(attr::iters));
    enter_outputs(p, call.out(out::x), call.out(out::post), call.out(out::comb));
    enter(Kind::kPostPre, p, streams.dtype, stream);
}

const Registration registration("mhc_post_pre", no_workspace, launch);

}  // namespace
}  // namespace dsv4::mhc
