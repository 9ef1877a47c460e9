// Entering a site in fp32 arithmetic, for a few tokens a cluster: one launch, every block reads its slice of
// fn once.
//
// 1. Each block: its channels of the streams (after the site that is left), their dot products with the rows
//    of fn, their squares. 2. All blocks: sums over the cluster, pre. 3. Each block: its channels collapsed;
//    squares again over the cluster; norm. A spare warp makes post and comb beside 3: Sinkhorn is slow.
#include "mhc/cluster_launch.h"
#include "mhc/few_project.cuh"

namespace dsv4::mhc {
namespace {

// Sum over the cluster of a token's dot product with row `lane` of fn, times rho.
template <int Rows, int Tokens>
__device__ __forceinline__ float mix_of_lane(Shared<Tokens>& shared, int token, int blocks, float eps, int hidden) {
    barrier_wait(&shared.sums_here, 0);
    float total = 0;
#pragma unroll 8
    for (int block = 0; block < blocks; ++block) total += shared.sums_of[block][token][threadIdx.x % 32];
    const float squares = __shfl_sync(kFullMask, total, Rows);
    return total * rsqrtf(squares / (kStreams * hidden) + eps);
}

// Lanes 4 .. 23 have what post and comb come from, scaled and shifted.
__device__ __forceinline__ void write_post_comb(const Params& p, int64_t token, float logit) {
    const int lane = threadIdx.x % 32;
    if (lane >= kStreams && lane < 2 * kStreams) p.post_out[token * kStreams + lane - kStreams] = 2 * sigmoid(logit);
    float comb[kStreams][kStreams];
#pragma unroll
    for (int i = 0; i < kStreams * kStreams; ++i) {
        comb[i / kStreams][i % kStreams] = __shfl_sync(kFullMask, logit, 2 * kStreams + i);
    }
    sinkhorn(comb, p.site.iters, p.site.hc_eps);
    if (lane != 0) return;
    float* out = p.comb_out + token * kStreams * kStreams;
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
        store_pack(out + j * kStreams, Pack<float, 4>{comb[j][0], comb[j][1], comb[j][2], comb[j][3]});
    }
}

// Channels of one token by kTeam threads: x before its norm into the token's first stream in `held`.
template <class T>
__device__ __forceinline__ float collapse_token(T* held, const float (&weights)[kStreams], int count, int thread) {
    const float pre[kStreams] = {weights[0], weights[1], weights[2], weights[3]};
    float sum = 0;
    for (int c = thread * kVector; c < count; c += kTeam * kVector) {
        Pack<T, kVector> x[kStreams];
#pragma unroll
        for (int j = 0; j < kStreams; ++j) x[j] = load_pack<kVector>(held + j * count + c);
        const Pack<T, kVector> out = collapse(pre, x);
        store_pack(held + c, out);
        sum += squares(out);
    }
    return warp_sum(sum);
}

template <class T, Kind kind, int Tokens>
__global__ void __launch_bounds__(kThreads, 1) few_kernel(const __grid_constant__ Params p) {
    constexpr int Rows = kRows<kind>;
    extern __shared__ __align__(16) unsigned char dynamic[];
    __shared__ Shared<Tokens> shared;
    const int blocks = cluster_size(), rank = cluster_rank();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t first = int64_t(blockIdx.x / blocks) * Tokens;
    const int slice = (p.hidden + blocks * kVector - 1) / (blocks * kVector) * kVector;
    const int begin = min(rank * slice, p.hidden), count = min(slice, p.hidden - begin);
    bf16* norm_weight = reinterpret_cast<bf16*>(dynamic);
    T* held = reinterpret_cast<T*>(norm_weight + 2 * slice);  // a multiple of 16 bytes from the start
    const float base = lane < Rows ? p.site.base[lane] : 0;
    const float scale = p.site.scale[kind == Kind::kHead || lane < kStreams ? 0 : lane < 2 * kStreams ? 1 : 2];

    if (threadIdx.x == 0) {
        barrier_init(&shared.sums_here, 1);
        barrier_init(&shared.squares_here, 1);
        barrier_init_done();
        barrier_expect(&shared.sums_here, blocks * sizeof shared.sums);
        barrier_expect(&shared.squares_here, blocks * Tokens * 4);
    }
    __syncthreads();
    cluster_arrive();

    if (warp == kWarps) {  // the spare one: post and comb of one token
        cluster_wait();
        if (kind == Kind::kHead || rank >= Tokens || first + rank >= p.tokens) return;
        const float mix = mix_of_lane<Rows>(shared, rank % Tokens, blocks, p.site.eps, p.hidden);
        write_post_comb(p, first + rank, mix * scale + base);
        return;
    }

    for (int c = threadIdx.x * kVector; c < count; c += kWorkers * kVector) {
        copy_async<8>(shared_address(norm_weight + c), p.site.norm_weight + begin + c);
    }
    project<T, kind, Tokens>(p, first, begin, count, held, shared, rank, blocks);
    if (warp < Tokens) {
        const float mix = mix_of_lane<Rows>(shared, warp, blocks, p.site.eps, p.hidden);
        if (lane < kStreams) shared.pre[warp][lane] = sigmoid(mix * scale + base) + p.site.hc_eps;
    }
    wait_copies();
    workers_sync();

    const int token = threadIdx.x / kTeam, thread = threadIdx.x % kTeam;
    T* x = held + token * kStreams * count;
    if (token < Tokens) {
        const float sum = collapse_token(x, shared.pre[token % Tokens], count, thread);
        if (lane == 0) shared.x_squares[token][thread / 32] = sum;
    }
    workers_sync();
    if (token >= Tokens) return;
    if (thread < blocks) {
        const float sum = shared.x_squares[token][0] + shared.x_squares[token][1];
        send(shared.x_squares_of[rank][token], sum, shared.squares_here, thread);
    }
    barrier_wait(&shared.squares_here, 0);  // all blocks have sent, so none is written to after its end
    const float squares_sum = warp_sum(lane < blocks ? shared.x_squares_of[lane][token] : 0);
    const float norm = rsqrtf(squares_sum / p.hidden + p.site.eps);
    if (first + token >= p.tokens) return;
    T* out = static_cast<T*>(p.x) + (first + token) * p.hidden + begin;
    for (int c = thread * kVector; c < count; c += kTeam * kVector) {
        store_pack(out + c, normalised(load_pack<kVector>(x + c), load_pack<kVector>(norm_weight + c), norm));
    }
}

// Launches with `Tokens` a cluster. Large clusters are fastest while all of them run at once: with `all` they
// get smaller for more tokens, else more tokens are refused.
template <class T, Kind kind, int Tokens>
bool launch_tokens(const Params& p, bool all, cudaStream_t stream) {
    const auto kernel = few_kernel<T, kind, Tokens>;
    const int64_t clusters = ceil_div(p.tokens, Tokens);
    ClusterShape chosen = {};
    for (int blocks = kMaxBlocks; blocks >= kMinBlocks; blocks /= 2) {
        const int64_t slice = int64_t(ceil_div(p.hidden, blocks * kVector)) * kVector;
        const size_t bytes = 2 * slice * sizeof(bf16) + Tokens * kStreams * slice * sizeof(T);
        const ClusterShape shape = {blocks, kThreads, bytes};
        const int resident = resident_clusters(reinterpret_cast<const void*>(kernel), shape);
        if (resident == 0) continue;  // sixteen is more than every device can
        if (clusters > resident && !all) return false;
        chosen = shape;
        if (clusters <= resident) break;
    }
    if (chosen.blocks == 0) return false;
    launch_clusters("mhc's few", kernel, clusters, chosen, stream, p);
    return true;
}

template <Kind kind>
bool launch_kind(const Params& p, int dtype, cudaStream_t stream) {
    if (dtype == DSV4_F32) return launch_tokens<float, kind, 2>(p, true, stream);
    return launch_tokens<bf16, kind, 1>(p, false, stream) || launch_tokens<bf16, kind, 2>(p, false, stream) ||
           launch_tokens<bf16, kind, 4>(p, true, stream);
}

}  // namespace

void few(Kind kind, const Params& p, int dtype, cudaStream_t stream) {
    const bool launched = kind == Kind::kPre       ? launch_kind<Kind::kPre>(p, dtype, stream)
                          : kind == Kind::kPostPre ? launch_kind<Kind::kPostPre>(p, dtype, stream)
                                                   : launch_kind<Kind::kHead>(p, dtype, stream);
    DSV4_REQUIRE(launched, "a stream has %d channels: too many for the shared memory of this device", p.hidden);
}

}  // namespace dsv4::mhc
