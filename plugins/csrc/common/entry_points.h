// What the library does beside ops: the bodies of dsv4_scatter and dsv4_copy_file, which abi.h describes.
#pragma once

#include "common/abi.h"

namespace dsv4 {

void scatter(int32_t* target, const int32_t* places, const int32_t* values, int count, cudaStream_t stream);

void copy_file(const char* path, const Dsv4FilePart* parts, int64_t count, void* staging, size_t staging_bytes,
               int readers);

}  // namespace dsv4
