// The projection of a few tokens in fp32 arithmetic: dot products of a block's channels with every row of fn.
#pragma once

#include "common/reduce.cuh"
#include "mhc/mix.cuh"
#include "mhc/send.cuh"

namespace dsv4::mhc {

constexpr int kWorkers = 256;
constexpr int kThreads = kWorkers + 32;
constexpr int kWarps = kWorkers / 32;
constexpr int kVector = 4;     // channels a thread takes at once
constexpr int kMaxTokens = 4;  // of a cluster; a quarter of the workers collapses each
constexpr int kTeam = kWorkers / kMaxTokens;

template <Kind kind>
constexpr int kRows = kind == Kind::kHead ? kStreams : kMix;

constexpr int kMaxBlocks = 16, kMinBlocks = 4;  // of a cluster

template <int Tokens>
struct Shared {
    float warp_sums[kWarps][Tokens][32];
    alignas(16) float sums[Tokens][32];                 // of this block's channels: rows of fn, then the squares
    alignas(16) float sums_of[kMaxBlocks][Tokens][32];  // what the blocks sent
    float x_squares[Tokens][kTeam / 32];                // of this block's channels of x, by warp
    float x_squares_of[kMaxBlocks][Tokens];
    float pre[Tokens][kStreams];
    uint64_t sums_here, squares_here;
};

__device__ __forceinline__ void workers_sync() { sync_threads<1, kWorkers>(); }

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
__device__ __forceinline__ Pack<T, kVector> stream_pack(const Params& p, int64_t token, int j, int c) {
    const T* streams = static_cast<const T*>(p.streams);
    const int64_t at = (token * kStreams + j) * p.hidden + c;
    if constexpr (kind == Kind::kHead) {
        const int row = p.rows[token];
        if (row < 0 || row >= p.source_tokens) {
            return {};
        }
        return load_pack<kVector>(streams + (int64_t(row) * kStreams + j) * p.hidden + c);
    } else if constexpr (kind == Kind::kPre) {
        return load_pack<kVector>(streams + at);
    } else {
        Pack<T, kVector> x[kStreams];
        float comb[kStreams];
#pragma unroll
        for (int i = 0; i < kStreams; ++i) {
            x[i] = load_pack<kVector>(streams + (token * kStreams + i) * p.hidden + c);
            comb[i] = p.comb[(token * kStreams + i) * kStreams + j];
        }
        const Pack<T, kVector> y = load_pack<kVector>(static_cast<const T*>(p.y) + token * p.hidden + c);
        const Pack<T, kVector> left = leave(p.post[token * kStreams + j], comb, y, x);
        store_pack(static_cast<T*>(p.streams_out) + at, left);
        return left;
    }
}

// Dot products of channels begin .. begin + count of the cluster's tokens with fn, sent to all blocks; the
// streams stay in `held` [Tokens][kStreams][count].
template <class T, Kind kind, int Tokens>
__device__ __forceinline__ void project(const Params& p, int64_t first, int begin, int count, T* held,
                                        Shared<Tokens>& shared, int rank, int blocks) {
    constexpr int Rows = kRows<kind>;
    constexpr int kGroup = Tokens == 1 || Rows < kMix ? Rows : 24 / Tokens;  // rows of fn on their way at once
    const int64_t fn_row = int64_t(kStreams) * p.hidden;
    const int packs = count / kVector;
    float sums[Tokens][32] = {};
    for (int i = threadIdx.x; i < kStreams * packs; i += kWorkers) {
        const int j = i / packs, c = i % packs * kVector;
        const float* fn = p.site.fn + int64_t(j) * p.hidden + begin + c;
        Pack<float, kVector> weights[kGroup];
        const auto load_weights = [&](int group) {
#pragma unroll
            for (int r = 0; r < kGroup; ++r) weights[r] = load_pack<kVector>(fn + (group + r) * fn_row);
        };
        if (Tokens == 1) load_weights(0);  // on their way while the streams are read
        float x[Tokens][kVector];
#pragma unroll
        for (int t = 0; t < Tokens; ++t) {
            Pack<T, kVector> pack = {};
            if (first + t < p.tokens) pack = stream_pack<T, kind>(p, first + t, j, begin + c);
            store_pack(held + (t * kStreams + j) * count + c, pack);
            sums[t][Rows] += squares(pack);
#pragma unroll
            for (int e = 0; e < kVector; ++e) x[t][e] = to_float(pack.at[e]);
        }
#pragma unroll
        for (int group = 0; group < Rows; group += kGroup) {
            if (Tokens > 1) load_weights(group);
#pragma unroll
            for (int r = 0; r < kGroup; ++r) {
#pragma unroll
                for (int t = 0; t < Tokens; ++t) {
#pragma unroll
                    for (int e = 0; e < kVector; ++e) {
                        sums[t][group + r] = fmaf(weights[r].at[e], x[t][e], sums[t][group + r]);
                    }
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
    cluster_wait();  // the other blocks' barriers are there
    const int t = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (t < Tokens) {  // a warp a token
        float sum = 0;
#pragma unroll
        for (int warp = 0; warp < kWarps; ++warp) sum += shared.warp_sums[warp][t][lane];
        shared.sums[t][lane] = sum;
        __syncwarp();
        constexpr int kParts = 8;
        for (int i = lane; i < kParts * blocks; i += 32) {
            float4& to = reinterpret_cast<float4*>(shared.sums_of[rank][t])[i % kParts];
            send(to, reinterpret_cast<const float4*>(shared.sums[t])[i % kParts], shared.sums_here, i / kParts);
        }
    }
}

}  // namespace dsv4::mhc
