// Every format and size in fp32: a block takes one token and a few heads and goes over the keys eight at a
// time, one a warp, with an online softmax. For exact models and odd sizes, not for speed.
#include <cuda_bf16.h>

#include "common/launch.cuh"
#include "common/reduce.cuh"
#include "common/rope.cuh"
#include "sparse_attention/keys.cuh"

namespace dsv4::sparse_attention {
namespace {

constexpr int kThreads = 256;
constexpr int kKeys = kThreads / 32;
constexpr int kHeads = 4;

struct Shared {
    float* q;       // [kHeads][dim], at the end the outputs
    float* keys;    // [kKeys][dim]; zeros where there is no key
    float* values;  // [kHeads][dim], sums of probabilities times keys; a channel belongs to one thread

    static size_t bytes(int dim) { return size_t(2 * kHeads + kKeys) * dim * sizeof(float); }
    __device__ static Shared of(float* memory, int dim) {
        return {memory, memory + kHeads * dim, memory + (kHeads + kKeys) * dim};
    }
};

// A warp reads its key and multiplies it with all heads; -inf where there is no key.
__device__ __forceinline__ void score_key(const Params& p, const Query& query, int slot, const Shared& mem,
                                          float (*scores)[kKeys]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const Key key = find_key(p, query, slot);
    float* row = mem.keys + warp * p.dim;
    float dots[kHeads] = {};
    for (int c = lane; c < p.dim; c += 32) {
        const float value = key.row ? key_channel(p, key, c) : 0.0f;
        row[c] = value;
#pragma unroll
        for (int h = 0; h < kHeads; ++h) dots[h] += mem.q[h * p.dim + c] * value;
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
        const float dot = warp_sum(dots[h]);
        if (lane == 0) scores[h][warp] = key.row ? dot * p.sm_scale : -INFINITY;
    }
}

// The softmax of one head so far; every thread keeps the same one.
struct Softmax {
    float peak = -INFINITY, total = 0;

    // Takes in more scores, which become probabilities; returns what earlier sums are multiplied by.
    __device__ float add(float (&scores)[kKeys]) {
        float next = peak;
#pragma unroll
        for (float score : scores) next = fmaxf(next, score);
        const float base = next == -INFINITY ? 0.0f : next;
        const float keep = expf(peak - base);
        total *= keep;
#pragma unroll
        for (float& score : scores) {
            score = expf(score - base);
            total += score;
        }
        peak = next;
        return keep;
    }
};

__device__ __forceinline__ void add_values(const Params& p, const Shared& mem, float (*scores)[kKeys],
                                           Softmax* softmax) {
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
        float probs[kKeys];
#pragma unroll
        for (int k = 0; k < kKeys; ++k) probs[k] = scores[h][k];
        const float keep = softmax[h].add(probs);
        if (p.round_probs) {
#pragma unroll
            for (float& prob : probs) prob = rounded<bf16>(prob);
        }
        for (int c = threadIdx.x; c < p.dim; c += kThreads) {
            float sum = mem.values[h * p.dim + c] * keep;
#pragma unroll
            for (int k = 0; k < kKeys; ++k) sum += probs[k] * mem.keys[k * p.dim + c];
            mem.values[h * p.dim + c] = sum;
        }
    }
}

template <class T>
__device__ void write_rows(const Params& p, const Query& query, int head, const Shared& mem) {
    const int tail = p.dim - 2 * p.rope_pairs, heads = min(kHeads, p.heads - head);
    T* out = static_cast<T*>(p.out) + (int64_t(query.token) * p.heads + head) * p.dim;
    for (int i = threadIdx.x; i < heads * p.dim / 2; i += kThreads) {
        float2 pair{rounded<T>(mem.q[2 * i]), rounded<T>(mem.q[2 * i + 1])};
        const int c = 2 * i % p.dim;
        if (p.inverse_rope && c >= tail) {
            float2 angle = rope_angle(query.position, p.inv_freq[(c - tail) / 2]);
            angle.y = -angle.y;
            pair = rotate(pair, angle);
        }
        out[2 * i] = from_float<T>(pair.x);
        out[2 * i + 1] = from_float<T>(pair.y);
    }
}

template <class T>
__global__ void __launch_bounds__(kThreads) kernel(Params p, int first, int head_blocks) {
    extern __shared__ float memory[];
    __shared__ float scores[kHeads][kKeys];
    const Shared mem = Shared::of(memory, p.dim);
    const int head = static_cast<int>(blockIdx.x % head_blocks) * kHeads;
    const Query query = Query::of(p, first + static_cast<int>(blockIdx.x / head_blocks));
    const T* q = static_cast<const T*>(p.q) + (int64_t(query.token) * p.heads + head) * p.dim;
    for (int i = threadIdx.x; i < kHeads * p.dim; i += kThreads) {
        mem.q[i] = head + i / p.dim < p.heads ? to_float(q[i]) : 0.0f;
        mem.values[i] = 0;
    }
    __syncthreads();
    Softmax softmax[kHeads];
    for (int slot = 0; slot < query.slots; slot += kKeys) {
        score_key(p, query, slot + threadIdx.x / 32, mem, scores);
        __syncthreads();
        add_values(p, mem, scores, softmax);
        __syncthreads();
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
        const float peak = softmax[h].peak == -INFINITY ? 0.0f : softmax[h].peak;
        const float sink = head + h < p.heads ? p.sinks[head + h] : 0.0f;
        const float total = softmax[h].total + expf(sink - peak);
        for (int c = threadIdx.x; c < p.dim; c += kThreads) {
            mem.q[h * p.dim + c] = total == 0 ? 0.0f : mem.values[h * p.dim + c] / total;
        }
    }
    __syncthreads();
    write_rows<T>(p, query, head, mem);
}

template <class T>
void launch(const Params& p, Rows rows, cudaStream_t stream) {
    const size_t bytes = Shared::bytes(p.dim);
    const int head_blocks = ceil_div(p.heads, kHeads);
    const int64_t blocks = int64_t(rows.count) * head_blocks;
    DSV4_REQUIRE(bytes <= 224 * 1024 && blocks <= INT32_MAX, "attention of %d channels and %d tokens is too large",
                 p.dim, rows.count);
    launch_kernel("sparse_attention generic", kernel<T>, {blocks, kThreads, bytes}, stream, p, rows.first, head_blocks);
}

}  // namespace

void generic(const Params& p, Rows rows, cudaStream_t stream) {
    if (p.bf16) {
        launch<bf16>(p, rows, stream);
    } else {
        launch<float>(p, rows, stream);
    }
}

}  // namespace dsv4::sparse_attention
