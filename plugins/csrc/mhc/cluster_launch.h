// Launches in clusters, also of more than the eight blocks that every device allows.
#pragma once

#include "common/launch.cuh"

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
    launch_kernel(name, kernel, {clusters * shape.blocks, shape.threads, shape.shared_bytes, shape.blocks}, stream, params);
}

}  // namespace dsv4::mhc
