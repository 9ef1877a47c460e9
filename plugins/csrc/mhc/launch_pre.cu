// mhc_pre: a site is entered.
#include "mhc/mhc.h"
#include "op_table.h"

namespace dsv4::mhc {
namespace {

void launch(const Call& call, void*, cudaStream_t stream) {
    using namespace table::mhc_pre;
    const Dsv4Tensor& streams = call.in(in::streams);
    Params p = stream_params(streams);
    p.site = site_params(p, call.in(in::fn), call.in(in::base), call.in(in::scale), call.in(in::norm_weight), kMix);
    p.site.eps = call.real(attr::eps);
    p.site.hc_eps = call.real(attr::hc_eps);
    p.site.iters = static_cast<int>(call.integer(attr::iters));
    enter_outputs(p, call.out(out::x), call.out(out::post), call.out(out::comb));
    enter(Kind::kPre, p, streams.dtype, stream);
}

const Registration registration("mhc_pre", no_workspace, launch);

}  // namespace
}  // namespace dsv4::mhc
