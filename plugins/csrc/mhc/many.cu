// Entering a site for many tokens of a wide bf16 model: the projection on tensor cores, fn in registers.
//
// A cluster of sixteen blocks, a sixteenth of the channels each, walks over tiles of tokens. Each warp keeps
// its part of fn, split into three bf16 parts that add up to the fp32 value exactly, as fragments of matrix
// products: two parts in registers, the third in shared memory. Streams come by bulk copies one tile ahead
// and are read from memory once.
#include "mhc/cluster_launch.h"
#include "mhc/many_project.cuh"

namespace dsv4::mhc {
namespace {

// The tile's streams after the site that is left, in place and to memory. A warp takes whole tokens; its
// loops stay loops, and packs are small where a lane has several, because fn has most of the registers.
template <class L>
__device__ __forceinline__ void leave_tile(const Params& p, char* tile, int64_t first, int begin) {
    constexpr int N = L::kOctets == 1 ? 8 : 4;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
    for (int row = warp * L::kTokens; row < (warp + 1) * L::kTokens; ++row) {
        const int64_t token = first + row;
        if (token >= p.tokens) return;
        const bf16* from = static_cast<const bf16*>(p.y) + token * p.hidden + begin;
        bf16* to = static_cast<bf16*>(p.streams_out) + token * kStreams * p.hidden + begin;
        bf16* held = reinterpret_cast<bf16*>(tile + row * L::kRow);
        const float* post = reinterpret_cast<const float*>(tile + L::kPostAt) + row * kStreams;
        const float* comb = reinterpret_cast<const float*>(tile + L::kCombAt) + row * kStreams * kStreams;
#pragma unroll 1
        for (int c = lane * N; c < L::kChannels; c += 32 * N) {
            const Pack<bf16, N> y = load_pack<N>(from + c);
            Pack<bf16, N> x[kStreams];
#pragma unroll
            for (int j = 0; j < kStreams; ++j) x[j] = load_pack<N>(held + j * L::kChannels + c);
#pragma unroll
            for (int k = 0; k < kStreams; ++k) {
                const float to_k[kStreams] = {comb[k], comb[4 + k], comb[8 + k], comb[12 + k]};
                const Pack<bf16, N> left = leave(post[k], to_k, y, x);
                store_pack(held + k * L::kChannels + c, left);
                store_pack(to + k * p.hidden + c, left);
            }
        }
    }
}

// post and comb of the tokens that this block has put aside; one a thread.
__device__ __forceinline__ void write_post_comb(const Params& p, const Aside& aside, int count) {
    if (threadIdx.x >= count || aside.token[threadIdx.x] >= p.tokens) return;
    const int64_t token = aside.token[threadIdx.x];
    const float* mix = aside.mix[threadIdx.x];
    const float* base = p.site.base + kStreams;
    Pack<float, kStreams> post;
#pragma unroll
    for (int k = 0; k < kStreams; ++k) post.at[k] = 2 * sigmoid(mix[k] * p.site.scale[1] + base[k]);
    store_pack(p.post_out + token * kStreams, post);
    float comb[kStreams][kStreams];
#pragma unroll
    for (int i = 0; i < kStreams * kStreams; ++i) {
        comb[i / kStreams][i % kStreams] = mix[kStreams + i] * p.site.scale[2] + base[kStreams + i];
    }
    sinkhorn(comb, p.site.iters, p.site.hc_eps);
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
        store_pack(p.comb_out + (token * kStreams + j) * kStreams,
                   Pack<float, 4>{comb[j][0], comb[j][1], comb[j][2], comb[j][3]});
    }
}

// This block's sums, over its warps, to the blocks that need them.
template <class L>
__device__ __forceinline__ void send_mixes(Exchange<L>& shared, const float (*partial)[kSums], int rank) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < L::kTokens; ++i) {
        const int row = warp * L::kTokens + i;
        if (lane > kMix) continue;
        float sum = 0;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) sum += partial[w * L::kTile + row][lane];
        if (lane < kStreams || lane == kMix) {
            shared.pre_sums[row][lane == kMix ? kStreams : lane] = sum;
        } else {
            shared.others[row][lane - kStreams] = sum;
        }
    }
    __syncthreads();
    constexpr int kPre = sizeof shared.pre_sums / sizeof(float4);
    constexpr int kParts = kPre + sizeof shared.others_of[0] / sizeof(float4);
    for (int i = threadIdx.x; i < kParts * kBlocks; i += kThreads) {
        const int to = i / kParts, part = i % kParts;
        if (part < kPre) {
            send_part(shared.pre_sums_of[rank], shared.pre_sums, part, shared.mixes_here, to);
        } else {
            send_part(shared.others_of[rank], shared.others[to * L::kMTiles], part - kPre, shared.mixes_here, to);
        }
    }
}

// This block's squares of x, to all blocks.
template <class L>
__device__ __forceinline__ void send_squares(Exchange<L>& shared, int rank) {
    constexpr int kParts = sizeof shared.x_squares / sizeof(float4);
    static_assert(kParts * kBlocks <= kThreads);
    if (threadIdx.x >= kParts * kBlocks) return;
    const int to = threadIdx.x / kParts, part = threadIdx.x % kParts;
    send_part(shared.x_squares_of[rank], shared.x_squares, part, shared.squares_here, to);
}

// Sums over the cluster: pre and rho of every token, and the other mixes of the tokens that are this block's.
template <class L>
__device__ __forceinline__ void receive_mixes(const Params& p, Exchange<L>& shared, Aside& aside, int rank, int count,
                                              int64_t first, int parity) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = rank * L::kMTiles + warp;
    barrier_wait(&shared.mixes_here, parity);
    if (threadIdx.x == 0) barrier_expect(&shared.mixes_here, Exchange<L>::kMixBytes);  // of the next tile
    const int row = threadIdx.x / 8, j = threadIdx.x % 8;
    if (row < L::kTile) {  // whole warps
        float sum = 0;
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) sum += j <= kStreams ? shared.pre_sums_of[block][row][j] : 0;
        const float squares = __shfl_sync(kFullMask, sum, kStreams, 8);
        const float rho = rsqrtf(squares / (kStreams * p.hidden) + p.site.eps);
        if (j < kStreams) {
            shared.pre[row][j] = sigmoid(sum * rho * p.site.scale[0] + p.site.base[j]) + p.site.hc_eps;
        }
        if (j == kStreams) shared.rho[row] = rho;
    }
    float other = 0;
    if (warp < L::kMTiles && lane < kMix - kStreams) {
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) other += shared.others_of[block][warp][lane];
    }
    __syncthreads();
    if (warp < L::kMTiles) {
        if (lane < kMix - kStreams) aside.mix[count + warp][lane] = other * shared.rho[own];
        if (lane == 0) aside.token[count + warp] = static_cast<int>(first + own);
    }
}

template <int Chunks, int MTiles, bool Post>
__global__ void __launch_bounds__(kThreads, 1) many_kernel(const __grid_constant__ Params p) {
    using L = Layout<Chunks, MTiles, Post>;
    extern __shared__ __align__(128) char dynamic[];
    __shared__ Exchange<L> shared;
    __shared__ Aside aside;
    __shared__ uint64_t full[2];  // a stage has come
    const int rank = cluster_rank(), clusters = gridDim.x / kBlocks;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int begin = rank * L::kChannels;
    const int tiles = (p.tokens + L::kTile - 1) / L::kTile;
    Fragment* low = reinterpret_cast<Fragment*>(dynamic + 2 * L::kStage);
    auto partial = reinterpret_cast<float(*)[kSums]>(dynamic + 2 * L::kStage + L::kLowBytes);

    int tile = blockIdx.x / kBlocks;
    if (threadIdx.x == 0) {
        for (uint64_t* barrier : {&full[0], &full[1], &shared.mixes_here, &shared.squares_here}) barrier_init(barrier, 1);
        barrier_init_done();
        barrier_expect(&shared.mixes_here, Exchange<L>::kMixBytes);
        barrier_expect(&shared.squares_here, Exchange<L>::kSquareBytes);
    }
    __syncthreads();
    cluster_arrive();
    if (warp == 0) {
        for (int stage = 0; stage < 2; ++stage) {
            fetch_tile<L>(p, tile + stage * clusters, begin, dynamic + stage * L::kStage, full[stage]);
        }
    }
    Fragment high[Chunks][2][3], mid[Chunks][2][3];
    split_fn(p, begin, high, mid, low);
    cluster_wait();  // the other blocks' barriers are there

    int count = 0;  // tokens put aside
    for (int n = 0; tile < tiles; ++n, tile += clusters) {
        char* held = dynamic + n % 2 * L::kStage;
        const int64_t first = int64_t(tile) * L::kTile;
        barrier_wait(&full[n % 2], n / 2 % 2);
        if constexpr (Post) {
            leave_tile<L>(p, held, first, begin);
            __syncthreads();
        }
        project<L>(held, high, mid, low, partial);
        __syncthreads();
        send_mixes(shared, partial, rank);
        receive_mixes(p, shared, aside, rank, count, first, n % 2);
        count += MTiles;

        Pack<bf16, 8> x[L::kTokens][L::kOctets];
#pragma unroll
        for (int i = 0; i < L::kTokens; ++i) {
            const int row = warp * L::kTokens + i;
            const float sum = warp_sum(collapse_row<L>(held, shared.pre[row], row, x[i]));
            if (lane == 0) shared.x_squares[row] = sum;
        }
        if constexpr (Post) fence_async_proxy();  // this stage was written by threads, and is next by copies
        __syncthreads();
        send_squares(shared, rank);
        if (warp == 0) fetch_tile<L>(p, tile + 2 * clusters, begin, held, full[n % 2]);
        barrier_wait(&shared.squares_here, n % 2);
        if (threadIdx.x == 0) barrier_expect(&shared.squares_here, Exchange<L>::kSquareBytes);
#pragma unroll
        for (int i = 0; i < L::kTokens; ++i) {
            const int row = warp * L::kTokens + i;
            const float sum = warp_sum<kBlocks>(shared.x_squares_of[lane % kBlocks][row]);
            if (first + row < p.tokens) write_row<L>(p, first + row, begin, x[i], rsqrtf(sum / p.hidden + p.site.eps));
        }
        if (count == kAside) {
            write_post_comb(p, aside, count);
            count = 0;
        }
    }
    cluster_arrive();  // a block must not end before what it sent is there
    write_post_comb(p, aside, count);
    cluster_wait();
}

template <int Chunks, int MTiles, bool Post>
bool run_tiles(const Params& p, bool launch, cudaStream_t stream) {
    using L = Layout<Chunks, MTiles, Post>;
    const auto kernel = many_kernel<Chunks, MTiles, Post>;
    const ClusterShape shape = {kBlocks, kThreads, L::kBytes};
    const int64_t resident = resident_clusters(reinterpret_cast<const void*>(kernel), shape);
    if (resident == 0 || !launch) return resident > 0;
    const int64_t tiles = (p.tokens + L::kTile - 1) / L::kTile;
    launch_clusters("mhc's many", kernel, tiles < resident ? tiles : resident, shape, stream, p);
    return true;
}

// Runs the kernel for these sizes, or with `launch` false only says whether there is one.
bool run(Kind kind, const Params& p, bool launch, cudaStream_t stream) {
    constexpr int kWideTokens = 256;  // from here tiles of 32 keep all clusters busy
    const bool post = kind == Kind::kPostPre;
    switch (p.hidden / (kBlocks * 64) * (p.hidden % (kBlocks * 64) == 0)) {
        case 4:
            if (post) return run_tiles<4, 1, true>(p, launch, stream);
            if (p.tokens < kWideTokens) return run_tiles<4, 1, false>(p, launch, stream);
            return run_tiles<4, 2, false>(p, launch, stream);
        case 7:
            if (post) return run_tiles<7, 1, true>(p, launch, stream);
            return run_tiles<7, 1, false>(p, launch, stream);
        default:
            return false;
    }
}

}  // namespace

bool many_fits(Kind kind, const Params& p, int dtype) {
    return dtype == DSV4_BF16 && run(kind, p, false, nullptr);
}

void many(Kind kind, const Params& p, cudaStream_t stream) { run(kind, p, true, stream); }

}  // namespace dsv4::mhc
