// Many query tokens of a few sequences, on Hopper.
#include "common/launch.cuh"
#include "sparse_attention/prefill_consume.cuh"
#include "sparse_attention/prefill_produce.cuh"

namespace dsv4::sparse_attention {
namespace prefill_kernel {
namespace {

template <int Half>
__device__ __forceinline__ void consume(const Params& p, const Work& work, Shared& shared) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, row = 16 * warp + lane / 4;
    // rows that no query has may take any
    const int first = min(row / work.query_rows, work.queries - 1);
    const int second = min((row + 8) / work.query_rows, work.queries - 1);
    Consumer<Half> consumer{p, work, shared, row, lane % 4, first | second << 8, p.sm_scale * 1.4426950408889634f};
    consumer.run();
#endif
}

__global__ void __launch_bounds__(kThreads, 1) kernel(const __grid_constant__ Params p, const __grid_constant__ Work work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ uint8_t bytes[];
    // the swizzle counts from multiples of 1,024 bytes
    Shared& shared = *reinterpret_cast<Shared*>(bytes + (-shared_address(bytes) & 1023));
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < 2; ++stage) {
            barrier_init(&shared.full[stage], kProducers / 32);
            barrier_init(&shared.empty[stage], kConsumers / 32);
        }
        barrier_init(&shared.q_full, kProducers / 32);
        barrier_init(&shared.q_empty, kConsumers / 32);
        barrier_init_done();
    }
    __syncthreads();
    const int group = threadIdx.x / 128;
    if (group == 0) {
        more_registers<kConsumerRegisters>();
        consume<0>(p, work, shared);
    } else if (group == 1) {
        more_registers<kConsumerRegisters>();
        consume<1>(p, work, shared);
    } else {
        fewer_registers<kProducerRegisters>();
        const int thread = threadIdx.x - kConsumers;
        Producer producer{p, work, shared, thread, thread / 4, thread % 4};
        producer.run();
    }
#endif
}

}  // namespace
}  // namespace prefill_kernel

using prefill_kernel::Shared;
using prefill_kernel::Work;

bool prefill_fits(const Params& p) {
    return p.bf16 && p.round_probs && p.format != Format::kFp32 && p.dim == prefill_kernel::kDim &&
           p.rope_pairs == prefill_kernel::kRopePairs && p.heads > 0 && p.sm_scale > 0 &&
           Work::shift_of(p.swa.entry.per_page) >= 0 &&
           (p.ratio == 0 || Work::shift_of(p.compressed.entry.per_page) >= 0) && device().capability == 90;
}

size_t prefill_workspace(const Params&) { return 0; }

void prefill(const Params& p, void*, cudaStream_t stream) {
    const Work work = Work::of(p);
    if (work.items <= 0) return;
    const int blocks = work.items < device().multiprocessors ? work.items : device().multiprocessors;
    launch_kernel("sparse_attention prefill", prefill_kernel::kernel,
                  {blocks, prefill_kernel::kThreads, sizeof(Shared) + 1024}, stream, p, work);
}

}  // namespace dsv4::sparse_attention
