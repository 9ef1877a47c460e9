// Sums the experts' outputs of each token, in the order of its picks.
#include "common/dependent_launch.cuh"
#include "common/numbers.cuh"
#include "experts/experts.h"

namespace dsv4::experts {
namespace {

constexpr int kThreads = 128;
constexpr int kPicks = 8;  // loads in flight

template <class T>
struct alignas(16) Vector {
    static constexpr int kSize = 16 / sizeof(T);
    T values[kSize];
};

template <class T>
__global__ void __launch_bounds__(kThreads) kernel(Combine p) {
    constexpr int kSize = Vector<T>::kSize;
    const int64_t token = blockIdx.x / p.parts;
    const int column = (blockIdx.x % p.parts * kThreads + threadIdx.x) * kSize;
    wait_for_previous();
    allow_next();
    if (column >= p.width) return;
    const T* y = static_cast<const T*>(p.y) + column;
    const int32_t* place = p.place + token * p.picks;
    float sum[kSize] = {};
    for (int first = 0; first < p.picks; first += kPicks) {
        int row[kPicks];
        Vector<T> part[kPicks];
#pragma unroll
        for (int i = 0; i < kPicks; ++i) row[i] = first + i < p.picks ? place[first + i] : -1;
#pragma unroll
        for (int i = 0; i < kPicks; ++i) {
            if (row[i] >= 0) part[i] = *reinterpret_cast<const Vector<T>*>(y + int64_t(row[i]) * p.width);
        }
#pragma unroll
        for (int i = 0; i < kPicks; ++i) {
            if (row[i] < 0) continue;
#pragma unroll
            for (int j = 0; j < kSize; ++j) sum[j] += to_float(part[i].values[j]);
        }
    }
    float* out = p.out + token * p.width + column;
#pragma unroll
    for (int j = 0; j < kSize; j += 4) {
        *reinterpret_cast<float4*>(out + j) = make_float4(sum[j], sum[j + 1], sum[j + 2], sum[j + 3]);
    }
}

template <class T>
void run(Combine p, cudaStream_t stream) {
    p.parts = ceil_div(p.width, kThreads * Vector<T>::kSize);
    launch_dependent("experts.combine", kernel<T>, p.tokens * p.parts, kThreads, 0, stream, p);
}

}  // namespace

void combine(const Combine& p, int y_dtype, cudaStream_t stream) {
    y_dtype == DSV4_F32 ? run<float>(p, stream) : run<bf16>(p, stream);
}

}  // namespace dsv4::experts
