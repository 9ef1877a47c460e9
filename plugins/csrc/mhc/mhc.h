// Hyper-connections: four residual streams a token, mixed into a layer's input and back (plugins/reference/mhc.py).
//
// Two kernels enter a site, both with a cluster of blocks for a group of tokens, each block with its slice of
// the channels, so that streams are read once: `few` (fp32 arithmetic, every size) and `many` (tensor cores,
// the projection held in registers, wide bf16 models).
#pragma once
#include <cuda_bf16.h>

#include "common/op.h"

namespace dsv4::mhc {

constexpr int kStreams = 4;
constexpr int kMix = 24;  // rows of fn: 4 pre, 4 post, 16 comb (source stream first)

enum class Kind { kPre, kPostPre, kHead };

struct Site {                          // what a site is entered with
    const float* fn;                   // [kMix, kStreams * hidden]; of the head [kStreams, ...]
    const float* base;                 // [kMix]; of the head [kStreams]
    const float* scale;                // [3]; of the head [1]
    const __nv_bfloat16* norm_weight;  // [hidden]
    float eps, hc_eps;
    int iters;
};

struct Params {
    int64_t tokens;                    // rows of x
    int hidden;
    const void* streams;               // [source_tokens, kStreams, hidden]
    int64_t source_tokens;
    const int32_t* rows;               // mhc_head: [tokens], rows of streams; one that is out of range reads as zeros

    const void* y;                     // the site that is left (mhc_post, mhc_post_pre): [tokens, hidden],
    const float* post;                 // [tokens, kStreams]
    const float* comb;                 // [tokens, kStreams, kStreams]
    void* streams_out;                 // [tokens, kStreams, hidden]

    Site site;
    void* x;                           // [tokens, hidden]
    float* post_out;                   // like post and comb
    float* comb_out;
};

// Parts of a call, checked.
Params stream_params(const Dsv4Tensor& streams);
void leave_params(Params& p, const Dsv4Tensor& y, const Dsv4Tensor& post, const Dsv4Tensor& comb,
                  const Dsv4Tensor& streams_out);
Site site_params(const Params& p, const Dsv4Tensor& fn, const Dsv4Tensor& base, const Dsv4Tensor& scale,
                 const Dsv4Tensor& norm_weight, int rows);
void enter_outputs(Params& p, const Dsv4Tensor& x, const Dsv4Tensor& post, const Dsv4Tensor& comb);

void enter(Kind kind, const Params& p, int dtype, cudaStream_t stream);  // kPre or kPostPre
void few(Kind kind, const Params& p, int dtype, cudaStream_t stream);
bool many_fits(Kind kind, const Params& p, int dtype);  // false also where the device has no clusters of its size
void many(Kind kind, const Params& p, cudaStream_t stream);

}  // namespace dsv4::mhc
