// Copies into shared memory, also of other blocks of the cluster; barriers there count their bytes.
//
// Blocks send and never fetch: a load of each lane from another block takes a round trip for each block. What they
// send goes 16 bytes a thread, not as bulk copies: compute-sanitizer does not follow those from block to block.
#pragma once

#include "common/barrier.cuh"
#include "common/cluster.cuh"

namespace dsv4::mhc {

// A bulk copy from global memory to this block's shared memory; `barrier` counts the bytes, a multiple of 16.
__device__ __forceinline__ void copy_bulk(void* to, const void* from, int bytes, uint64_t& barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(&barrier))
        : "memory");
}

// Writes a value to the same place of another block; `barrier` (there) counts the bytes.
__device__ __forceinline__ void send(float4& to, float4 value, uint64_t& barrier, int rank) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                     peer_address(&to, rank)),
                 "r"(__float_as_uint(value.x)), "r"(__float_as_uint(value.y)), "r"(__float_as_uint(value.z)),
                 "r"(__float_as_uint(value.w)), "r"(peer_address(&barrier, rank))
                 : "memory");
}
__device__ __forceinline__ void send(float& to, float value, uint64_t& barrier, int rank) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                     peer_address(&to, rank)),
                 "r"(__float_as_uint(value)), "r"(peer_address(&barrier, rank))
                 : "memory");
}

// Sixteen bytes of an array, number `part`, to the same place of another block's array.
__device__ __forceinline__ void send_part(void* to, const void* from, int part, uint64_t& barrier, int rank) {
    send(static_cast<float4*>(to)[part], static_cast<const float4*>(from)[part], barrier, rank);
}

}  // namespace dsv4::mhc
