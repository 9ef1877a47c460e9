// Rows of the local vocabulary slice; ids outside it give zeros.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"
#include "embed/embed.h"
#include "op_table.h"

namespace dsv4::embed {
namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ void store(float* out, const bf16 (&values)[8]) {
#pragma unroll
    for (int i = 0; i < 8; i += 4) {
        *reinterpret_cast<float4*>(out + i) = make_float4(to_float(values[i]), to_float(values[i + 1]),
                                                          to_float(values[i + 2]), to_float(values[i + 3]));
    }
}

__device__ __forceinline__ void store(bf16* out, const bf16 (&values)[8]) {
    *reinterpret_cast<uint4*>(out) = *reinterpret_cast<const uint4*>(values);
}

__device__ __forceinline__ void store(float* out, const bf16 (&values)[1]) { *out = to_float(values[0]); }
__device__ __forceinline__ void store(bf16* out, const bf16 (&values)[1]) { *out = values[0]; }

template <class T, int kVector>
__global__ void __launch_bounds__(kThreads) kernel(Params p) {
    const int64_t token = blockIdx.x / p.parts;
    const int column = (blockIdx.x % p.parts * kThreads + threadIdx.x) * kVector;
    wait_for_previous();
    allow_next();
    if (column >= p.width) return;
    const int64_t row = int64_t(p.token_ids[token]) - *p.row_offset;
    alignas(16) bf16 values[kVector];
    if (row >= 0 && row < p.vocabulary) {
        const bf16* from = static_cast<const bf16*>(p.weight) + row * p.width + column;
        if constexpr (kVector == 8) {
            *reinterpret_cast<uint4*>(values) = *reinterpret_cast<const uint4*>(from);
        } else {
            values[0] = *from;
        }
    } else {
#pragma unroll
        for (int i = 0; i < kVector; ++i) values[i] = from_float<bf16>(0.0f);
    }
    store(static_cast<T*>(p.out) + token * p.width + column, values);
}

template <class T>
void run(Params p, bool vectors, cudaStream_t stream) {
    p.parts = ceil_div(p.width, kThreads * (vectors ? 8 : 1));
    launch_dependent("embed", vectors ? kernel<T, 8> : kernel<T, 1>, p.tokens * p.parts, kThreads, 0, stream, p);
}

void launch(const Call& call, void*, cudaStream_t stream) {
    using namespace table::embed;
    const Dsv4Tensor& ids = call.in(in::token_ids);
    const Dsv4Tensor& weight = call.in(in::weight);
    const Dsv4Tensor& out = call.out(out::out);
    require_dense(ids, "token_ids");
    require_dense(weight, "weight");
    require_dense(out, "out");
    const Params p = {data<const int32_t>(ids), weight.data,     data<const int32_t>(call.in(in::row_offset)),
                      out.data,                 ids.shape[0],    weight.shape[0],
                      int(weight.shape[1]),     0};
    if (p.tokens == 0 || p.width == 0) return;
    const bool vectors = p.width % 8 == 0 && aligned(p.weight, 16) && aligned(p.out, 16);
    if (out.dtype == DSV4_F32) {
        run<float>(p, vectors, stream);
    } else {
        run<bf16>(p, vectors, stream);
    }
}

const Registration registration("embed", no_workspace, launch);

}  // namespace
}  // namespace dsv4::embed
