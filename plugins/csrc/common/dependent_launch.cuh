// Launches a kernel that may start while the one before it on the stream still runs.
//
// The kernel must call wait_for_previous() before it touches anything that an earlier kernel of the same op
// writes, or anything it writes itself; what it reads before that must be older than the kernel before it.
#pragma once

#include "common/launch.cuh"

namespace dsv4 {

// All work before this kernel is complete and visible after it.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel may be set up from here on. In a kernel that starts early it comes after wait_for_previous(), so
// that the next one, too, may rely on all before this one having ended.
__device__ __forceinline__ void allow_next() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

template <class Params>
void launch_dependent(const char* name, void (*kernel)(Params), int64_t blocks, int threads, size_t shared_bytes,
                      cudaStream_t stream, const Params& params) {
    launch_kernel(name, kernel, {blocks, threads, shared_bytes, 1, true}, stream, params);
}

}  // namespace dsv4
