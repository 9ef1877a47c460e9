// Scores on Hopper: as tensor_scores.cu, but the four warps of a group have 64 keys in registers together and
// multiply them with all heads of a token at once.
//
// Four groups share a multiprocessor: while one rounds, weights and sums, the others multiply.
#include "common/dependent_launch.cuh"
#include "common/mma.cuh"
#include "common/shared_memory.cuh"
#include "index_topk/order.cuh"
#include "index_topk/queries.cuh"
#include "index_topk/token_tile.cuh"
#include "index_topk/wgmma.cuh"

namespace dsv4::index_topk {
namespace {

constexpr int kGroup = 128;         // threads that multiply together
constexpr int kPromptTokens = 6;    // of a block; two blocks' queries fit into shared memory
constexpr int kKeys = 64;           // of a tile; it lies in one page

// Groups of a block, and blocks of a multiprocessor by registers and shared memory.
constexpr int groups(int tokens) { return tokens > 1 ? 2 : 1; }
constexpr int blocks_per_multiprocessor(Format format, int tokens) {
    return tokens > 1 ? 2 : format == Format::kBf16 ? 3 : 4;
}

struct TokenQueries {
    uint32_t columns[2][kTensorHeads][32];      // by half of k, head and pair of k, as common/wgmma.cuh wants them
};

template <int kTokens>
struct Shared {
    TokenQueries queries[kTokens];
    HeadWeights weights[kTokens];
    TokenTile<kTokens> tile;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ void put(TokenQueries& to, int head, int t, const uint32_t (&words)[kSliceWords]) {
#pragma unroll
    for (int i = 0; i < kSliceWords; ++i) {     // pair i of a slice is at k = 8i + 2t, in chunk i
        to.columns[i / 8][head][(i % 8 ^ head % 8) * 4 + t] = words[i];
    }
}

// 64 keys as they lie in a page: in each lane slices of rows g and g + 8 of its warp's 16.
template <Format kFormat>
struct KeyTile {
    Slice<kFormat> rows[2];
    float scale;        // fp8: of the key whose score this lane will store
    bool present;

    // The page of a tile, -1 for none; it is asked for long before the keys.
    static __device__ __forceinline__ int page(const Params& p, int table_row, int tile) {
        const int per_page = p.entry.per_page / kKeys;
        return p.table.page(table_row, per_page == 1 ? tile : tile / per_page);     // one is usual
    }
    __device__ __forceinline__ void load(const Params& p, int page, int tile) {
        const int per_page = p.entry.per_page / kKeys;
        const int first = per_page == 1 ? 0 : tile % per_page * kKeys;
        const int in_page = first + threadIdx.x % kGroup / 32 * 16 + threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        present = p.pool.has(page);
        if (!present) return;
        const uint8_t* base = p.pool.at(page);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int e = in_page + 8 * i;
            rows[i].load(base + p.entry.row(e), base + p.entry.scales(e), t);
        }
        if constexpr (kFormat == Format::kFp8) {
            scale = __ldg(reinterpret_cast<const float*>(base + p.entry.scales(in_page + 8 * (t % 2))));
        }
    }
};

// The scores of this lane's keys g and g + 8 for one token.
template <bool kHalf>
__device__ __forceinline__ float2 score(const uint32_t (&key)[2][kSliceWords], const TokenQueries& q,
                                        const HeadWeights& weights) {
    float dots[32];
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 8; ++step) {
        const uint64_t columns = wgmma_operand(shared_address(q.columns[step / 4])) + step % 4 * (32 >> 4);
        const int i = 2 * step;
        wgmma_64x64<kHalf>(dots, key[0][i], key[1][i], key[0][i + 1], key[1][i + 1], columns, step > 0);
    }
    wgmma_commit();
    // loaded in the meantime
    const uint4* pairs = reinterpret_cast<const uint4*>(weights[threadIdx.x % 4]);
    const uint4 w[2] = {pairs[0], pairs[1]};
    const uint32_t weight[8] = {w[0].x, w[0].y, w[0].z, w[0].w, w[1].x, w[1].y, w[1].z, w[1].w};
    wgmma_wait<0>();
    hold(dots);
    float sums[2][4] = {};      // two chains are shorter than one
#pragma unroll
    for (int n = 0; n < kColumnTiles; n += 2) {
        const float* c = dots + 4 * n;
        mma_bf16(sums[n / 2 % 2], mul_bf16_pair(relu_bf16_pair(c[0], c[1]), weight[n]),
                 mul_bf16_pair(relu_bf16_pair(c[2], c[3]), weight[n]),
                 mul_bf16_pair(relu_bf16_pair(c[4], c[5]), weight[n + 1]),
                 mul_bf16_pair(relu_bf16_pair(c[6], c[7]), weight[n + 1]), kOnes, kOnes);
    }
    return {sums[0][0] + sums[1][0], sums[0][2] + sums[1][2]};
}

template <Format kFormat, int kTokens>
__device__ __forceinline__ void score_tiles(const Params& p, Shared<kTokens>& shared) {
    allow_next();
    const int first = p.row_begin + (gridDim.x - 1 - blockIdx.x) * kTokens;
    const int tokens = min(kTokens, p.row_end - first);
    const int worker = blockIdx.y * groups(kTokens) + threadIdx.x / kGroup, workers = gridDim.y * groups(kTokens);
    shared.tile.read(p, first, tokens);
    __syncthreads();

    for (int begin = 0, end, most; begin < tokens; begin = end) {
        end = shared.tile.run(begin, tokens, most);
        if (most == 0) continue;
        const int table_row = shared.tile.table_rows[begin];
        const int tiles = (most + kKeys - 1) / kKeys;
        KeyTile<kFormat> next;
        next.load(p, next.page(p, table_row, worker), worker);
        int page = next.page(p, table_row, worker + workers);
        for (int i = begin; i < end; ++i) {
            if (shared.tile.visible[i] > 0) {
                read_queries<kFormat>(p, first + i, blockDim.x, shared.queries[i], shared.weights[i]);
            }
        }
        fence_async_proxy();
        __syncthreads();
        for (int tile = worker; tile < tiles; tile += workers) {
            uint32_t keys[2][kSliceWords];
            next.rows[0].decode(keys[0]);
            next.rows[1].decode(keys[1]);
            hold(keys[0]);
            hold(keys[1]);
            const bool present = next.present;
            const float scale = kFormat == Format::kFp8 ? next.scale : 1.0f;
            if (tile + workers < tiles) next.load(p, page, tile + workers);
            page = next.page(p, table_row, tile + 2 * workers);
            const int t = threadIdx.x % 4;
            const int entry = tile * kKeys + threadIdx.x % kGroup / 32 * 16 + 8 * t + threadIdx.x % 32 / 4;
            for (int i = begin; i < end; ++i) {
                if (tile * kKeys >= shared.tile.visible[i]) continue;
                float2 both = {__uint_as_float(0x7FC00000u), __uint_as_float(0x7FC00000u)};
                if (present) both = score<Slice<kFormat>::kHalf>(keys, shared.queries[i], shared.weights[i]);
                const float value = (t == 0 ? both.x : both.y) * scale;
                uint16_t* row = static_cast<uint16_t*>(p.scores) + (first + i - p.row_begin) * p.stride;
                if (t < 2 && entry < shared.tile.visible[i]) row[entry] = ordered<uint16_t>(value);
            }
        }
    }
}

#endif

template <Format kFormat, int kTokens>
__global__ void __launch_bounds__(kGroup* groups(kTokens), blocks_per_multiprocessor(kFormat, kTokens))
    kernel(Params p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ uint8_t raw[];
    const uint32_t pad = -shared_address(raw) % 1024;
    score_tiles<kFormat>(p, *reinterpret_cast<Shared<kTokens>*>(raw + pad));
#endif
}

template <Format kFormat, int kTokens>
void start(const Params& p, cudaStream_t stream) {
    constexpr int kBytes = sizeof(Shared<kTokens>) + 1024;
    const int tiles = ceil_div(p.row_end - p.row_begin, kTokens);
    const int room = max(1, blocks_per_multiprocessor(kFormat, kTokens) * device().multiprocessors / tiles);
    const int splits = min(room, ceil_div(p.width, kTokens * groups(kTokens) * kKeys));
    cudaFuncSetAttribute(kernel<kFormat, kTokens>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    kernel<kFormat, kTokens><<<dim3(tiles, splits), kGroup * groups(kTokens), kBytes, stream>>>(p);
    check_launch("index_topk scores");
}

template <Format kFormat>
void start(const Params& p, bool share, cudaStream_t stream) {
    if (share) {
        start<kFormat, kPromptTokens>(p, stream);
    } else {
        start<kFormat, 1>(p, stream);
    }
}

}  // namespace

bool hopper_scores_fit(const Params& p) {
    return tensor_scores_fit(p) && p.entry.per_page % kKeys == 0 && device().capability == 90;
}

void hopper_scores(const Params& p, bool share, cudaStream_t stream) {
    if (p.format == Format::kFp4) start<Format::kFp4>(p, share, stream);
    if (p.format == Format::kFp8) start<Format::kFp8>(p, share, stream);
    if (p.format == Format::kBf16) start<Format::kBf16>(p, share, stream);
}

}  // namespace dsv4::index_topk
