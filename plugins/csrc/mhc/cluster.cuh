// Thread block clusters: barriers, and writing into the shared memory of the other blocks.
//
// Blocks send and never fetch: a load of each lane from another block takes a round trip for each block.
#pragma once

#include <stdint.h>

namespace dsv4::mhc {

__device__ __forceinline__ int cluster_rank() {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ int cluster_size() {
    uint32_t size;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    return size;
}

// Every thread of every block arrives and waits; what was written before is seen after.
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ __forceinline__ void cluster_sync() {
    cluster_arrive();
    cluster_wait();
}

__device__ __forceinline__ uint32_t shared_address(const void* shared) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Where `shared` of block `rank` lies.
__device__ __forceinline__ uint32_t peer_address(const void* shared, int rank) {
    uint32_t address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(shared)), "r"(rank));
    return address;
}

// Barriers that count bytes: one thread's expect() and as many bytes end a phase.
__device__ __forceinline__ void init_barrier(uint64_t& barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&barrier)) : "memory");
}
__device__ __forceinline__ void fence_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void expect(uint64_t& barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void wait_barrier(uint64_t& barrier, int parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(shared_address(&barrier)), "r"(parity)
        : "memory");
}

// What this thread wrote to shared memory is there for copies that are started after the next barrier.
__device__ __forceinline__ void fence_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

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
