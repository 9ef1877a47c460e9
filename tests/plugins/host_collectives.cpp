// What collectives do around NCCL, in the host's memory, and who holds the communicator.
#include <cuda_bf16.h>

#include <cstddef>

#include "collective/collective.h"
#include "collective/communicator.h"

namespace dsv4::collective {

void widen(const void* from, float* to, int64_t count, cudaStream_t) {
    for (int64_t i = 0; i < count; ++i) to[i] = __bfloat162float(static_cast<const __nv_bfloat16*>(from)[i]);
}

void narrow(const float* from, void* to, int64_t count, cudaStream_t) {
    for (int64_t i = 0; i < count; ++i) static_cast<__nv_bfloat16*>(to)[i] = __float2bfloat16_rn(from[i]);
}

void interleave(const float* gathered, float* out, int ranks, int64_t rows, int64_t cols, cudaStream_t) {
    for (int64_t i = 0; i < ranks * rows * cols; ++i) {
        const int64_t rank = i / (rows * cols), row = i / cols % rows, col = i % cols;
        out[(row * ranks + rank) * cols + col] = gathered[i];
    }
}

}  // namespace dsv4::collective

extern "C" {

DSV4_EXPORT int32_t hold() {
    try {
        dsv4::collective::retain();
        return 0;
    } catch (const std::exception&) {
        return 1;
    }
}

DSV4_EXPORT void let_go() { dsv4::collective::release(); }

// Where the fields of Dsv4Communicator begin, and where it ends.
DSV4_EXPORT int64_t communicator_offsets[] = {
    offsetof(Dsv4Communicator, comm),       offsetof(Dsv4Communicator, rank),
    offsetof(Dsv4Communicator, world_size), offsetof(Dsv4Communicator, device),
    offsetof(Dsv4Communicator, reserved),   offsetof(Dsv4Communicator, all_reduce),
    offsetof(Dsv4Communicator, all_gather), offsetof(Dsv4Communicator, error_string),
    sizeof(Dsv4Communicator),
};

}  // extern "C"
