// Launches with what <<<>>> has no words for: clusters, and an early start.
#pragma once

#include <algorithm>
#include <type_traits>

#include "common/op.h"

namespace dsv4 {

struct LaunchShape {
    int64_t blocks;             // of all clusters
    int threads;                // of a block
    size_t shared_bytes = 0;    // dynamic, of a block
    int cluster = 1;            // blocks of a cluster
    bool starts_early = false;  // while the kernel ahead on the stream still runs: see dependent_launch.cuh
};

// Raises the kernel's limit of dynamic shared memory: 48 KiB need no asking, but static shared memory counts too.
template <class... Params>
void launch_kernel(const char* name, void (*kernel)(Params...), const LaunchShape& shape, cudaStream_t stream,
                   const std::type_identity_t<Params>&... params) {
    if (shape.shared_bytes > 0) {
        const int limit = static_cast<int>(std::max<size_t>(shape.shared_bytes, 48 * 1024));
        const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, limit);
        DSV4_REQUIRE(status == cudaSuccess, "%zu bytes of shared memory for %s: %s", shape.shared_bytes, name,
                     cudaGetErrorString(status));
    }
    cudaLaunchAttribute attributes[2] = {};
    int count = 0;
    if (shape.starts_early) {
        attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (shape.cluster > 1) {
        attributes[count].id = cudaLaunchAttributeClusterDimension;
        attributes[count++].val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
    config.blockDim = dim3(static_cast<unsigned>(shape.threads));
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = static_cast<unsigned>(count);
    const cudaError_t status = cudaLaunchKernelEx(&config, kernel, std::remove_cvref_t<Params>(params)...);
    if (status != cudaSuccess) fail("launch of %s: %s", name, cudaGetErrorString(status));
}

}  // namespace dsv4
