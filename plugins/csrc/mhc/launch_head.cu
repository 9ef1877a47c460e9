// mhc_head: the wanted rows collapsed and normed for the logits.
#include "mhc/mhc.h"
#include "op_table.h"

namespace dsv4::mhc {
namespace {

void launch(const Call& call, void*, cudaStream_t stream) {
    using namespace table::mhc_head;
    const Dsv4Tensor& streams = call.in(in::streams);
    const Dsv4Tensor& rows = call.in(in::rows);
    const Dsv4Tensor& x = call.out(out::x);
    Params p = stream_params(streams);
    p.site = site_params(p, call.in(in::fn), call.in(in::base), call.in(in::scale), call.in(in::norm_weight), kStreams);
    p.site.eps = call.real(attr::eps);
    p.site.hc_eps = call.real(attr::hc_eps);
    require_dense(rows, "rows");
    require_dense(x, "x");
    p.tokens = rows.shape[0];
    p.rows = data<const int32_t>(rows);
    p.x = x.data;
    if (p.tokens == 0 || p.hidden == 0) return;
    few(Kind::kHead, p, streams.dtype, stream);
}

const Registration registration("mhc_head", no_workspace, launch);

}  // namespace
}  // namespace dsv4::mhc
