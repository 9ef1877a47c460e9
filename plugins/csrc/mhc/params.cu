// Calls taken apart: what all four ops have in common.
#include "mhc/mhc.h"

namespace dsv4::mhc {
namespace {

constexpr int kFewTokens = 24;  // six clusters of sixteen blocks, which an H200 runs at once, four tokens each

void require_size(const char* name, int64_t found, int64_t expected) {
    DSV4_REQUIRE(found == expected, "'%s' has %lld elements; expected %lld", name, static_cast<long long>(found),
                 static_cast<long long>(expected));
}

// Vectors of four floats are read from it.
void require_vectors(const Dsv4Tensor& tensor, const char* name) {
    require_dense(tensor, name);
    DSV4_REQUIRE(aligned(tensor.data, 16), "'%s' is at an address that is no multiple of 16", name);
}

}  // namespace

Params stream_params(const Dsv4Tensor& streams) {
    DSV4_REQUIRE(streams.shape[1] == kStreams, "a token has %lld residual streams; these kernels are for %d",
                 static_cast<long long>(streams.shape[1]), kStreams);
    require_dense(streams, "streams");
    Params p = {};
    p.tokens = p.source_tokens = streams.shape[0];
    p.hidden = static_cast<int>(streams.shape[2]);
    p.streams = streams.data;
    return p;
}

void leave_params(Params& p, const Dsv4Tensor& y, const Dsv4Tensor& post, const Dsv4Tensor& comb,
                  const Dsv4Tensor& streams_out) {
    require_dense(y, "y");
    require_vectors(post, "post");
    require_vectors(comb, "comb");
    require_dense(streams_out, "streams");
    require_size("y", elements(y), p.tokens * p.hidden);
    require_size("post", elements(post), p.tokens * kStreams);
    require_size("comb", elements(comb), p.tokens * kStreams * kStreams);
    p.y = y.data;
    p.post = data<const float>(post);
    p.comb = data<const float>(comb);
    p.streams_out = streams_out.data;
}

void enter_outputs(Params& p, const Dsv4Tensor& x, const Dsv4Tensor& post, const Dsv4Tensor& comb) {
    require_vectors(x, "x");
    require_vectors(post, "post");
    require_vectors(comb, "comb");
    p.x = x.data;
    p.post_out = data<float>(post);
    p.comb_out = data<float>(comb);
}

Site site_params(const Params& p, const Dsv4Tensor& fn, const Dsv4Tensor& base, const Dsv4Tensor& scale,
                 const Dsv4Tensor& norm_weight, int rows) {
    DSV4_REQUIRE(p.hidden % 4 == 0, "a stream has %d channels; expected a multiple of 4", p.hidden);
    require_vectors(fn, "fn");
    require_vectors(norm_weight, "norm_weight");
    require_dense(base, "base");
    require_dense(scale, "scale");
    require_size("fn", elements(fn), int64_t(rows) * kStreams * p.hidden);
    require_size("base", elements(base), rows);
    require_size("scale", elements(scale), rows == kMix ? 3 : 1);
    require_size("norm_weight", elements(norm_weight), p.hidden);
    DSV4_REQUIRE(aligned(p.streams, 16) && aligned(p.y, 16) && aligned(p.streams_out, 16),
                 "streams or y are at an address that is no multiple of 16");
    Site site = {};
    site.fn = data<const float>(fn);
    site.base = data<const float>(base);
    site.scale = data<const float>(scale);
    site.norm_weight = data<const __nv_bfloat16>(norm_weight);
    return site;
}

void enter(Kind kind, const Params& p, int dtype, cudaStream_t stream) {
    DSV4_REQUIRE(p.site.iters > 0, "'iters' is %d; expected at least 1", p.site.iters);
    if (p.tokens == 0 || p.hidden == 0) return;
    if (p.tokens > kFewTokens && many_fits(kind, p, dtype)) {
        many(kind, p, stream);
    } else {
        few(kind, p, dtype, stream);
    }
}

}  // namespace dsv4::mhc
