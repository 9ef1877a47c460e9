// Launches in clusters, also of more than the eight blocks that every device allows.
#pragma once

#include "common/op.h"

namespace dsv4::mhc {

struct ClusterShape {
    int blocks, threads;  // blocks of a cluster, threads of a block
    size_t shared_bytes;
};

// How many clusters of this shape the device runs at once; 0: it runs none.
int resident_clusters(const void* kernel, const ClusterShape& shape);

template <class Params>
void launch_clusters(const char* name, void (*kernel)(Params), int64_t clusters, const ClusterShape& shape,
                     cudaStream_t stream, const Params& params) {
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {static_cast<unsigned>(shape.blocks), 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(clusters * shape.blocks));
    config.blockDim = dim3(shape.threads);
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    cudaError_t status = cudaLaunchKernelEx(&config, kernel, Params(params));
    if (status != cudaSuccess) fail("launch of %s: %s", name, cudaGetErrorString(status));
}

}  // namespace dsv4::mhc
