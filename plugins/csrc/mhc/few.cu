// Entering a site in fp32 arithmetic, for a few tokens a cluster: one launch, every block reads its slice of
// fn once.
//
// 1. Each block: its channels of the streams (after the site that is left), their dot products with the rows
//    of fn, their squares. 2. All blocks: sums over the cluster, pre. 3. Each block: its channels collapsed;
//    squares again over the cluster; norm. A spare warp makes post and comb beside 3: Sinkhorn is slow.
#include "common/reduce.cuh"
#include "mhc/cluster.cuh"
#include "mhc/cluster_launch.h"
#include "mhc/mix.cuh"

namespace dsv4::mhc {
namespace {

constexpr int kWorkers = 256;
constexpr int kThreads = kWorkers + 32;
constexpr int kWarps = kWorkers / 32;
constexpr int N = 4;          // channels a thread takes at once
constexpr int kMaxTokens = 4;  // of a cluster; a quarter of the workers collapses each
constexpr int kTeam = kWorkers / kMaxTokens;

template <Kind kind>
constexpr int kRows = kind == Kind::kHead ? kStreams : kMix;

template <int Tokens>
struct Shared {
    float warp_sums[kWarps][Tokens][32];
    float sums[Tokens][32];                    // of this block: rows of fn, then the squares
    float pre[Tokens][kStreams];
    float x_squares[Tokens][kTeam / 32];       // of this block's channels of x
};

__device__ __forceinline__ void workers_sync() { asm volatile("bar.sync 1, %0;" ::"n"(kWorkers) : "memory"); }

__device__ __forceinline__ void copy_async(void* shared, const void* global) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared_address(shared)), "l"(global) : "memory");
}
__device__ __forceinline__ void copies_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Lane l gets the sum over the warp of value l: each step sends away the half that other lanes will have.
template <int Half = 16>
__device__ __forceinline__ float sum_columns(const float (&value)[2 * Half]) {
    const bool upper = threadIdx.x & Half;
    float mine[Half];
#pragma unroll
    for (int i = 0; i < Half; ++i) {
        const float low = value[i], high = value[i + Half];
        mine[i] = (upper ? high : low) + __shfl_xor_sync(kFullMask, upper ? low : high, Half);
    }
    if constexpr (Half == 1) {
        return mine[0];
    } else {
        return sum_columns<Half / 2>(mine);
    }
}

// Channels `c ..` of stream j of a token, as the site sees them; kPostPre writes them too.
template <class T, Kind kind>
__device__ __forceinline__ Pack<T, N> stream_pack(const Params& p, int64_t token, int j, int c) {
    const T* streams = static_cast<const T*>(p.streams);
    const int64_t at = (token * kStreams + j) * p.hidden + c;
    if constexpr (kind == Kind::kHead) {
        const int row = p.rows[token];
        if (row < 0 || row >= p.source_tokens) {
            return {};
        }
        return load_pack<N>(streams + (int64_t(row) * kStreams + j) * p.hidden + c);
    } else if constexpr (kind == Kind::kPre) {
        return load_pack<N>(streams + at);
    } else {
        Pack<T, N> x[kStreams];
        float comb[kStreams];
#pragma unroll
        for (int i = 0; i < kStreams; ++i) {
            x[i] = load_pack<N>(streams + (token * kStreams + i) * p.hidden + c);
            comb[i] = p.comb[(token * kStreams + i) * kStreams + j];
        }
        const Pack<T, N> y = load_pack<N>(static_cast<const T*>(p.y) + token * p.hidden + c);
        const Pack<T, N> left = leave(p.post[token * kStreams + j], comb, y, x);
        store_pack(static_cast<T*>(p.streams_out) + at, left);
        return left;
    }
}

// Sum over the cluster of one token's lane `lane` of `sums`, times rho: a row of fn each lane.
template <int Rows>
__device__ __forceinline__ float mix_of_lane(const float (&sums)[32], int blocks, float eps, int hidden) {
    const int lane = threadIdx.x % 32;
    float total = 0;
#pragma unroll 16
    for (int rank = 0; rank < blocks; ++rank) total += peer_load(&sums[lane], rank);
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

// Dot products of channels begin .. begin + count of the cluster's tokens with fn, into shared.sums; the
// streams stay in `held` [Tokens][kStreams][count].
template <class T, Kind kind, int Tokens>
__device__ __forceinline__ void project(const Params& p, int64_t first, int begin, int count, T* held,
                                        Shared<Tokens>& shared) {
    constexpr int Rows = kRows<kind>;
    constexpr int kGroup = Tokens == 1 || Rows < kMix ? Rows : 24 / Tokens;  // rows of fn on their way at once
    const int64_t fn_row = int64_t(kStreams) * p.hidden;
    const int packs = count / N;
    float sums[Tokens][32] = {};
    for (int i = threadIdx.x; i < kStreams * packs; i += kWorkers) {
        const int j = i / packs, c = i % packs * N;
        const float* fn = p.site.fn + int64_t(j) * p.hidden + begin + c;
        Pack<float, N> weights[kGroup];
        const auto load_weights = [&](int group) {
#pragma unroll
            for (int r = 0; r < kGroup; ++r) weights[r] = load_pack<N>(fn + (group + r) * fn_row);
        };
        if (Tokens == 1) load_weights(0);  // on their way while the streams are read
        float x[Tokens][N];
#pragma unroll
        for (int t = 0; t < Tokens; ++t) {
            Pack<T, N> pack = {};
            if (first + t < p.tokens) pack = stream_pack<T, kind>(p, first + t, j, begin + c);
            store_pack(held + (t * kStreams + j) * count + c, pack);
            sums[t][Rows] += squares(pack);
#pragma unroll
            for (int e = 0; e < N; ++e) x[t][e] = to_float(pack.at[e]);
        }
#pragma unroll
        for (int group = 0; group < Rows; group += kGroup) {
            if (Tokens > 1) load_weights(group);
#pragma unroll
            for (int r = 0; r < kGroup; ++r) {
#pragma unroll
                for (int t = 0; t < Tokens; ++t) {
#pragma unroll
                    for (int e = 0; e < N; ++e) sums[t][group + r] = fmaf(weights[r].at[e], x[t][e], sums[t][group + r]);
                }
            }
        }
    }
#pragma unroll
    for (int t = 0; t < Tokens; ++t) {
        const float sum = sum_columns(sums[t]);
        shared.warp_sums[threadIdx.x / 32][t][threadIdx.x % 32] = sum;
    }
    workers_sync();
    if (threadIdx.x < Tokens * 32) {
        const int t = threadIdx.x / 32, lane = threadIdx.x % 32;
        float sum = 0;
#pragma unroll
        for (int warp = 0; warp < kWarps; ++warp) sum += shared.warp_sums[warp][t][lane];
        shared.sums[t][lane] = sum;
    }
}

// Channels of one token by kTeam threads: x before its norm into the token's first stream in `held`.
template <class T>
__device__ __forceinline__ float collapse_token(T* held, const float (&weights)[kStreams], int count, int thread) {
    const float pre[kStreams] = {weights[0], weights[1], weights[2], weights[3]};
    float sum = 0;
    for (int c = thread * N; c < count; c += kTeam * N) {
        Pack<T, N> x[kStreams];
#pragma unroll
        for (int j = 0; j < kStreams; ++j) x[j] = load_pack<N>(held + j * count + c);
        const Pack<T, N> out = collapse(pre, x);
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
    const int slice = (p.hidden + blocks * N - 1) / (blocks * N) * N;
    const int begin = min(rank * slice, p.hidden), count = min(slice, p.hidden - begin);
    bf16* norm_weight = reinterpret_cast<bf16*>(dynamic);
    T* held = reinterpret_cast<T*>(norm_weight + 2 * slice);  // a multiple of 16 bytes from the start
    const float base = lane < Rows ? p.site.base[lane] : 0;
    const float scale = p.site.scale[kind == Kind::kHead || lane < kStreams ? 0 : lane < 2 * kStreams ? 1 : 2];

    if (warp == kWarps) {  // the spare one: post and comb of one token
        cluster_sync();
        const bool mine = kind != Kind::kHead && rank < Tokens && first + rank < p.tokens;
        const float logit =
            mine ? mix_of_lane<Rows>(shared.sums[rank % Tokens], blocks, p.site.eps, p.hidden) * scale + base : 0;
        cluster_arrive();
        if (mine) write_post_comb(p, first + rank, logit);
        cluster_wait();
        cluster_sync();
        return;
    }

    for (int c = threadIdx.x * N; c < count; c += kWorkers * N) {
        copy_async(norm_weight + c, p.site.norm_weight + begin + c);
    }
    project<T, kind, Tokens>(p, first, begin, count, held, shared);
    copies_wait();
    cluster_sync();

    if (warp < Tokens) {
        const float mix = mix_of_lane<Rows>(shared.sums[warp], blocks, p.site.eps, p.hidden);
        if (lane < kStreams) shared.pre[warp][lane] = sigmoid(mix * scale + base) + p.site.hc_eps;
    }
    workers_sync();
    const int token = threadIdx.x / kTeam, thread = threadIdx.x % kTeam;
    T* x = held + token * kStreams * count;
    if (token < Tokens) {
        const float sum = collapse_token(x, shared.pre[token % Tokens], count, thread);
        if (lane == 0) shared.x_squares[token][thread / 32] = sum;
    }
    cluster_sync();

    float part = 0;
    if (token < Tokens && lane / 2 < blocks) part = peer_load(&shared.x_squares[token][lane % 2], lane / 2);
    const float norm = rsqrtf(warp_sum(part) / p.hidden + p.site.eps);
    cluster_arrive();  // a block must not end before the others have read from it
    if (token < Tokens && first + token < p.tokens) {
        T* out = static_cast<T*>(p.x) + (first + token) * p.hidden + begin;
        for (int c = thread * N; c < count; c += kTeam * N) {
            store_pack(out + c, normalised(load_pack<N>(x + c), load_pack<N>(norm_weight + c), norm));
        }
    }
    cluster_wait();
}

template <class T, Kind kind, int Tokens>
void launch_tokens(const Params& p, cudaStream_t stream) {
    const auto kernel = few_kernel<T, kind, Tokens>;
    for (int blocks : {16, 8}) {  // sixteen is more than every device can
        const int64_t slice = int64_t(ceil_div(p.hidden, blocks * N)) * N;
        const ClusterShape shape = {blocks, kThreads, 2 * slice * sizeof(bf16) + Tokens * kStreams * slice * sizeof(T)};
        if (resident_clusters(reinterpret_cast<const void*>(kernel), shape) == 0) continue;
        launch_clusters("mhc's few", kernel, ceil_div(p.tokens, Tokens), shape, stream, p);
        return;
    }
    fail("a stream has %d channels: too many for the shared memory of this device", p.hidden);
}

template <Kind kind>
void launch_kind(const Params& p, int dtype, cudaStream_t stream) {
    if (dtype == DSV4_F32) return launch_tokens<float, kind, 2>(p, stream);
    if (p.tokens <= 8) return launch_tokens<bf16, kind, 1>(p, stream);
    if (p.tokens <= 16) return launch_tokens<bf16, kind, 2>(p, stream);
    launch_tokens<bf16, kind, 4>(p, stream);
}

}  // namespace

void few(Kind kind, const Params& p, int dtype, cudaStream_t stream) {
    if (kind == Kind::kPre) return launch_kind<Kind::kPre>(p, dtype, stream);
    if (kind == Kind::kPostPre) return launch_kind<Kind::kPostPre>(p, dtype, stream);
    launch_kind<Kind::kHead>(p, dtype, stream);
}

}  // namespace dsv4::mhc
