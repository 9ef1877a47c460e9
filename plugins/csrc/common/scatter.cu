// Writes single int32 values to places of a device array.
#include "common/entry_points.h"
#include "common/op.h"

namespace dsv4 {
namespace {

__global__ void kernel(int32_t* target, const int32_t* places, const int32_t* values, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) target[places[i]] = values[i];
}

}  // namespace

void scatter(int32_t* target, const int32_t* places, const int32_t* values, int count, cudaStream_t stream) {
    if (count == 0) return;
    kernel<<<ceil_div(count, 256), 256, 0, stream>>>(target, places, values, count);
    check_launch("scatter");
}

}  // namespace dsv4
