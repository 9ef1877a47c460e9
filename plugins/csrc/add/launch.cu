// a + b in fp32, eight elements a thread.
#include "add/add.h"
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"
#include "op_table.h"

namespace dsv4::add {
namespace {

constexpr int kThreads = 256;
constexpr int kVector = 8;

__device__ __forceinline__ void load(float (&to)[kVector], const float* from) {
#pragma unroll
    for (int i = 0; i < kVector; i += 4) {
        const float4 part = *reinterpret_cast<const float4*>(from + i);
        to[i] = part.x, to[i + 1] = part.y, to[i + 2] = part.z, to[i + 3] = part.w;
    }
}

__device__ __forceinline__ void load(float (&to)[kVector], const bf16* from) {
    alignas(16) bf16 part[kVector];
    *reinterpret_cast<uint4*>(part) = *reinterpret_cast<const uint4*>(from);
#pragma unroll
    for (int i = 0; i < kVector; ++i) to[i] = to_float(part[i]);
}

__device__ __forceinline__ void store(float* to, const float (&from)[kVector]) {
#pragma unroll
    for (int i = 0; i < kVector; i += 4) {
        *reinterpret_cast<float4*>(to + i) = make_float4(from[i], from[i + 1], from[i + 2], from[i + 3]);
    }
}

__device__ __forceinline__ void store(bf16* to, const float (&from)[kVector]) {
    alignas(16) bf16 part[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) part[i] = from_float<bf16>(from[i]);
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(part);
}

template <class B, class Out>
__global__ void __launch_bounds__(kThreads) kernel(Params p) {
    const int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    const B* from = static_cast<const B*>(p.b);
    Out* out = static_cast<Out*>(p.out);
    wait_for_previous();
    allow_next();
    if (thread < p.vectors) {
        float a[kVector], b[kVector];
        load(a, p.a + thread * kVector);
        load(b, from + thread * kVector);
#pragma unroll
        for (int i = 0; i < kVector; ++i) a[i] += b[i];
        store(out + thread * kVector, a);
        return;
    }
    const int64_t i = p.vectors * kVector + (thread - p.vectors);
    if (i < p.count) out[i] = from_float<Out>(p.a[i] + to_float(from[i]));
}

void launch(const Call& call, void*, cudaStream_t stream) {
    using namespace table::add;
    const Dsv4Tensor& a = call.in(in::a);
    const Dsv4Tensor& b = call.in(in::b);
    const Dsv4Tensor& out = call.out(out::out);
    require_dense(a, "a");
    require_dense(b, "b");
    require_dense(out, "out");
    Params p = {data<const float>(a), b.data, out.data, elements(a), 0};
    if (p.count == 0) return;
    const bool vectors = aligned(p.a, 16) && aligned(p.b, 16) && aligned(p.out, 16);
    p.vectors = vectors ? p.count / kVector : 0;
    const int64_t threads = p.vectors + (p.count - p.vectors * kVector);
    const auto chosen = b.dtype == DSV4_F32 ? (out.dtype == DSV4_F32 ? kernel<float, float> : kernel<float, bf16>)
                                            : (out.dtype == DSV4_F32 ? kernel<bf16, float> : kernel<bf16, bf16>);
    launch_dependent("add", chosen, ceil_div(threads, kThreads), kThreads, 0, stream, p);
}

const Registration registration("add", no_workspace, launch);

}  // namespace
}  // namespace dsv4::add
