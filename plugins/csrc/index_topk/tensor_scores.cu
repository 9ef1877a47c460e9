// Scores on tensor cores: a warp holds 32 keys in registers and multiplies them with the queries of the
// block's tokens, which lie in shared memory in the order of the fragments.
//
// A product's rows are keys and its columns heads. So two neighbouring accumulators are two heads of one
// key, and once rounded and weighted they are the left operand of a second product, with ones, that sums
// over heads in fp32.
#include "common/dependent_launch.cuh"
#include "common/mma.cuh"
#include "index_topk/order.cuh"
#include "index_topk/queries.cuh"
#include "index_topk/token_tile.cuh"

namespace dsv4::index_topk {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int blocks_per_multiprocessor(Format format) { return format == Format::kBf16 ? 2 : 3; }  // by registers

struct TokenQueries {
    uint4 fragments[kColumnTiles][4][32];       // by 8 heads, 2 steps of k, lane
    HeadWeights weights;
};

__device__ __forceinline__ void put(TokenQueries& to, int head, int t, const uint32_t (&words)[kSliceWords]) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
        const uint32_t* w = words + 4 * step;
        to.fragments[head / 8][step][head % 8 * 4 + t] = {w[0], w[1], w[2], w[3]};
    }
}

// 32 keys as they lie in a page: in each lane slices of rows g, g + 8, g + 16 and g + 24.
template <Format kFormat>
struct KeyTile {
    Slice<kFormat> rows[4];
    float scale;        // fp8: of key 8t + g, which this lane will store the score of
    bool present;

    __device__ __forceinline__ void load(const Params& p, int table_row, int tile, int lane) {
        const int entry = tile * kTileKeys, in_page = entry % p.entry.per_page;
        const int page = p.table.page(table_row, entry / p.entry.per_page);
        present = p.pool.has(page);
        if (!present) return;
        const uint8_t* base = p.pool.at(page);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int e = in_page + 8 * i + lane / 4;
            rows[i].load(base + p.entry.row(e), base + p.entry.scales(e), lane % 4);
        }
        if constexpr (kFormat == Format::kFp8) {
            const int e = in_page + 8 * (lane % 4) + lane / 4;
            scale = __ldg(reinterpret_cast<const float*>(base + p.entry.scales(e)));
        }
    }
};

// The score of key 8t + g for one token.
template <bool kHalf>
__device__ __forceinline__ float score(const uint32_t (&key)[4][kSliceWords], const TokenQueries& q, int lane) {
    float sums[2][4] = {};
#pragma unroll 1
    for (int heads = 0; heads < kColumnTiles; heads += 2) {
        float dots[2][2][4] = {};   // 16 keys, 8 heads
#pragma unroll
        for (int step = 0; step < 4; ++step) {
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                const uint4 b = q.fragments[heads + n][step][lane];
#pragma unroll
                for (int m = 0; m < 2; ++m) {
                    const uint32_t *low = key[2 * m] + 4 * step, *high = key[2 * m + 1] + 4 * step;
                    if constexpr (kHalf) {
                        mma_f16(dots[m][n], low[0], high[0], low[1], high[1], b.x, b.y);
                        mma_f16(dots[m][n], low[2], high[2], low[3], high[3], b.z, b.w);
                    } else {
                        mma_bf16(dots[m][n], low[0], high[0], low[1], high[1], b.x, b.y);
                        mma_bf16(dots[m][n], low[2], high[2], low[3], high[3], b.z, b.w);
                    }
                }
            }
        }
        uint32_t weights[2] = {q.weights[lane % 4][heads], q.weights[lane % 4][heads + 1]};
#pragma unroll
        for (int m = 0; m < 2; ++m) {
            uint32_t a[2][2];
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                const float(&c)[4] = dots[m][n];
                a[n][0] = mul_bf16_pair(relu_bf16_pair(c[0], c[1]), weights[n]);
                a[n][1] = mul_bf16_pair(relu_bf16_pair(c[2], c[3]), weights[n]);
            }
            mma_bf16(sums[m], a[0][0], a[0][1], a[1][0], a[1][1], kOnes, kOnes);
        }
    }
    // every column holds the sum; lane t takes rows 8t .. 8t + 7
    const int t = lane % 4;
    return t == 0 ? sums[0][0] : t == 1 ? sums[0][2] : t == 2 ? sums[1][0] : sums[1][2];
}

template <Format kFormat, int kTokens>
__global__ void __launch_bounds__(kThreads, blocks_per_multiprocessor(kFormat)) kernel(Params p) {
    extern __shared__ __align__(16) uint8_t shared[];
    TokenQueries* queries = reinterpret_cast<TokenQueries*>(shared);
    __shared__ TokenTile<kTokens> block;

    allow_next();
    // the last tokens see most keys: they go first
    const int first = p.row_begin + (gridDim.x - 1 - blockIdx.x) * kTokens;
    const int tokens = min(kTokens, p.row_end - first);
    block.read(p, first, tokens);
    __syncthreads();
    const int lane = threadIdx.x % 32;
    const int worker = blockIdx.y * kWarps + threadIdx.x / 32, workers = gridDim.y * kWarps;
    for (int begin = 0, end, most; begin < tokens; begin = end) {
        end = block.run(begin, tokens, most);
        if (most == 0) continue;
        const int table_row = block.table_rows[begin];
        const int tiles = (most + kTileKeys - 1) / kTileKeys;
        KeyTile<kFormat> next;
        if (worker < tiles) next.load(p, table_row, worker, lane);
        for (int i = begin; i < end; ++i) {
            if (block.visible[i] > 0) read_queries<kFormat>(p, first + i, kThreads, queries[i], queries[i].weights);
        }
        __syncthreads();
        for (int tile = worker; tile < tiles; tile += workers) {
            uint32_t keys[4][kSliceWords];
#pragma unroll
            for (int i = 0; i < 4; ++i) next.rows[i].decode(keys[i]);
            const bool present = next.present;
            const float scale = kFormat == Format::kFp8 ? next.scale : 1.0f;
            if (tile + workers < tiles) next.load(p, table_row, tile + workers, lane);
            const int entry = tile * kTileKeys + 8 * (lane % 4) + lane / 4;
            for (int i = begin; i < end; ++i) {
                if (tile * kTileKeys >= block.visible[i]) continue;
                float value = 0;
                if (present) value = score<Slice<kFormat>::kHalf>(keys, queries[i], lane);
                if (kFormat == Format::kFp8) value *= scale;
                if (!present) value = __uint_as_float(0x7FC00000u);
                uint16_t* row = static_cast<uint16_t*>(p.scores) + (first + i - p.row_begin) * p.stride;
                if (entry < block.visible[i]) row[entry] = ordered<uint16_t>(value);
            }
        }
    }
}

template <Format kFormat, int kTokens>
void start(const Params& p, cudaStream_t stream) {
    constexpr int kShared = kTokens * sizeof(TokenQueries);
    const int tiles = ceil_div(p.row_end - p.row_begin, kTokens);
    const int room = max(1, blocks_per_multiprocessor(kFormat) * device().multiprocessors / tiles);
    const int splits = min(room, ceil_div(p.width, kTileKeys * kWarps));
    cudaFuncSetAttribute(kernel<kFormat, kTokens>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
    kernel<kFormat, kTokens><<<dim3(tiles, splits), kThreads, kShared, stream>>>(p);
    check_launch("index_topk scores");
}

template <Format kFormat>
void start(const Params& p, bool share, cudaStream_t stream) {
    if (share) {
        start<kFormat, 4>(p, stream);
    } else {
        start<kFormat, 1>(p, stream);
    }
}

}  // namespace

bool tensor_scores_fit(const Params& p) {
    return p.rounds && p.format != Format::kFp32 && p.num_heads == kTensorHeads && p.entry.per_page % kTileKeys == 0;
}

void tensor_scores(const Params& p, bool share, cudaStream_t stream) {
    if (p.format == Format::kFp4) start<Format::kFp4>(p, share, stream);
    if (p.format == Format::kFp8) start<Format::kFp8>(p, share, stream);
    if (p.format == Format::kBf16) start<Format::kBf16>(p, share, stream);
}

}  // namespace dsv4::index_topk
