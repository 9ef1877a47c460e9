// Groups of four tokens, pooled with the first half of the previous group: eight terms a channel.
//
// A team of width / 4 lanes makes an entry: four channels a lane, so that all terms of a channel are in
// registers after one round of loads. A team looks after one row, or four where there are many: of a
// prefill's rows every fourth completes a group. Lane 8 i + j finds out where term j of row i lies.
#include "common/dependent_launch.cuh"
#include "common/reduce.cuh"
#include "compress/finish.cuh"

namespace dsv4::compress {
namespace {

constexpr int kThreads = 128;
constexpr int kRatio = 4, kTerms = 2 * kRatio;
constexpr int kMostRows = 32 / kTerms;     // of a team
constexpr int kManyRows = 2048;            // from here on a team has that many

// The softmax-weighted sum of the terms of four channels. Nothing but missing terms gives NaN.
__device__ __forceinline__ void pool_terms(const float (&values)[kTerms][4], const float (&gates)[kTerms][4],
                                           float (&out)[4]) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
        float peak = gates[0][c], total = 0, sum = 0;
#pragma unroll
        for (int j = 1; j < kTerms; ++j) peak = fmaxf(peak, gates[j][c]);
#pragma unroll
        for (int j = 0; j < kTerms; ++j) {
            const float weight = softmax_weight(gates[j][c] - peak);
            total += weight;
            sum = fmaf(values[j][c], weight, sum);
        }
        out[c] = __fdividef(sum, total);
    }
}

// The terms of an entry for four channels.
template <int kWidth>
struct Terms {
    float values[kTerms][4], gates[kTerms][4];

    // Those of this step, or the others; lanes `from ..` of the warp know where they lie.
    __device__ __forceinline__ void load(const Term& term, int from, int channel, bool fresh) {
#pragma unroll
        for (int j = 0; j < kTerms; ++j) {
            const float* source = shuffled(term.values, from + j) + (j < kRatio ? 0 : kWidth) + channel;
            const bool wanted = (__shfl_sync(kFullMask, term.bias, from + j) >= 0) == fresh;
            if (!wanted) continue;
            load_once(source, values[j]);
            load_once(source + 2 * kWidth, gates[j]);
        }
        __syncwarp();  // all loads are on their way before the first is waited for
    }

    __device__ __forceinline__ void complete(const Params& p, const Term& term, int from, int channel) {
#pragma unroll
        for (int j = 0; j < kTerms; ++j) {
            const int bias = __shfl_sync(kFullMask, term.bias, from + j);
            add_bias(p, bias, (j < kRatio ? 0 : kWidth) + channel, gates[j]);
        }
    }
};

// A row on its way to its state.
template <int kWidth>
struct Kept {
    float values[2][4], gates[2][4];

    __device__ __forceinline__ void load(const Params& p, int row, int channel) {
        const float* from = p.kv_gate + int64_t(row) * 4 * kWidth + channel;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            load_once(from + half * kWidth, values[half]);
            load_once(from + (half + 2) * kWidth, gates[half]);
        }
    }

    __device__ __forceinline__ void put(const Params& p, float* to, int position, int channel) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            add_bias(p, position % kRatio, half * kWidth + channel, gates[half]);
            store(to + channel + half * kWidth, values[half]);
            store(to + channel + (half + 2) * kWidth, gates[half]);
        }
    }
};

template <int kWidth>
__global__ void __launch_bounds__(kThreads) kernel(Params p) {
    const int team_rows = p.spread;
    constexpr int kTeam = kWidth / 4;
    __shared__ float scratch[kThreads / 32];
    const int lane = threadIdx.x % 32, channel = threadIdx.x % kTeam * 4;
    const int first = (blockIdx.x * (kThreads / kTeam) + threadIdx.x / kTeam) * team_rows;
    const int mine = lane / kTerms < team_rows ? first + lane / kTerms : p.step.num_tokens;
    const Row own = row_of(p, mine);
    const int token = own.position - (kTerms - 1) + lane % kTerms;
    const int to_page = entry_page(p, own), state_page = kept_page(p, own), from_page = older_page(p, own, token);
    const EntryPlace place = entry_place(p, own, to_page);
    float* state = state_row(p, state_page, own.state_slot);
    const Term term = term_of(p, own, mine, token, from_page);
    for (int i = 0; i < team_rows; ++i) {
        // the same for all lanes of a team
        const int from = i * kTerms, position = __shfl_sync(kFullMask, own.position, from);
        float* kept_to = shuffled(state, from);
        const EntryPlace to = shuffled(place, from);
        Terms<kWidth> terms;
        Channels channels;
        if (to.row) {
            terms.load(term, from, channel, false);
            channels = channels_of(p, channel, position);
        }
        if (i == 0) {  // what comes before is older than the kernel ahead, which makes kv_gate
            wait_for_previous();
            allow_next();
        }
        if (to.row) terms.load(term, from, channel, true);
        if (kept_to) {
            Kept<kWidth> kept;
            kept.load(p, first + i, channel);
            kept.put(p, kept_to, position, channel);
        }
        if (!to.row) continue;
        terms.complete(p, term, from, channel);
        float x[4];
        pool_terms(terms.values, terms.gates, x);
        round_act(p, x);
        const float sum = kTeam == 32 ? warp_sum(squares(x)) : block_sum<kThreads>(squares(x), scratch);
        finish(p, to, channels, sum / kWidth, x);
    }
}

template <int kWidth>
void start(Params p, cudaStream_t stream) {
    p.spread = p.step.num_tokens > kManyRows ? kMostRows : 1;
    const int block_rows = p.spread * kThreads / (kWidth / 4);
    launch_dependent("compress", kernel<kWidth>, ceil_div(p.step.num_tokens, block_rows), kThreads, 0, stream, p);
}

}  // namespace

void overlapping(const Params& p, cudaStream_t stream) {
    DSV4_REQUIRE(p.ratio == kRatio && (p.width == 128 || p.width == 512),
                 "groups of %d tokens and %d channels that overlap; expected %d tokens, 128 or 512 channels", p.ratio,
                 p.width, kRatio);
    if (p.width == 128) return start<128>(p, stream);
    start<512>(p, stream);
}

}  // namespace dsv4::compress
