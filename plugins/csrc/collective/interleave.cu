// What came rank by rank, put row by row: a thread takes its columns of one rank through the rows.
#include <algorithm>

#include "collective/collective.h"
#include "common/dependent_launch.cuh"
#include "common/pack.cuh"

namespace dsv4::collective {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxRows = 65535;  // of a grid

template <int N>
__global__ void __launch_bounds__(kThreads) kernel(const float* gathered, float* out, int64_t rows, int64_t cols) {
    const int64_t rank = blockIdx.z, ranks = gridDim.z;
    const int64_t col = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * N;
    allow_next();
    if (col >= cols) return;
    for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
        store_pack(out + (row * ranks + rank) * cols + col, load_pack<N>(gathered + (rank * rows + row) * cols + col));
    }
}

}  // namespace

void interleave(const float* gathered, float* out, int ranks, int64_t rows, int64_t cols, cudaStream_t stream) {
    constexpr int N = kPack<float>;
    const bool packs = cols % N == 0 && aligned(gathered, 16) && aligned(out, 16);
    const auto chosen = packs ? kernel<N> : kernel<1>;
    const dim3 grid(ceil_div(cols / (packs ? N : 1), kThreads), std::min(rows, kMaxRows), ranks);
    chosen<<<grid, kThreads, 0, stream>>>(gathered, out, rows, cols);
    check_launch("interleave");
}

}  // namespace dsv4::collective
