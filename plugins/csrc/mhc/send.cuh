// Bulk copies into shared memory, also of other blocks of the cluster; barriers there count their bytes.
//
// Blocks send and never fetch: a load of each lane from another block takes a round trip for each block.
#pragma once

#include "common/barrier.cuh"
#include "common/cluster.cuh"

namespace dsv4::mhc {

// Copies from global memory to this block's shared memory, and from there to the same place of another block;
// `barrier` (there) counts the bytes, a multiple of 16.
__device__ __forceinline__ void copy_bulk(void* to, const void* from, int bytes, uint64_t& barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(&barrier))
        : "memory");
}
__device__ __forceinline__ void send(void* to, const void* from, int bytes, uint64_t& barrier, int rank) {
    asm volatile(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            peer_address(to, rank)),
        "r"(shared_address(from)), "r"(bytes), "r"(peer_address(&barrier, rank))
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

}  // namespace dsv4::mhc
