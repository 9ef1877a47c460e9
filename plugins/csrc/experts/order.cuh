// What the kernels that order pairs share.
#pragma once

#include "experts/experts.h"

namespace dsv4::experts {

constexpr int kNowhere = 0x7FFFFFFF;  // in place of a local expert; sorts behind all of them

__device__ __forceinline__ int local_expert(const Routing& r, int pair) {
    const int id = r.expert_ids[pair];
    if (id < 0 || id >= r.experts) return kNowhere;
    const int local = r.expert_map[id];
    return local >= 0 && local < r.local ? local : kNowhere;
}

// How an item stands among others.
struct Standing {
    int less;       // of a lower expert
    int before;     // of the same expert, and before it
    int same;       // of the same expert, itself included
};

// `experts` is in shared memory, at a multiple of 16 bytes; `count` is a multiple of 4.
__device__ __forceinline__ Standing standing(const int* experts, int count, int item) {
    const int mine = experts[item];
    Standing s = {0, 0, 0};
#pragma unroll 4
    for (int i = 0; i < count; i += 4) {
        const int4 others = *reinterpret_cast<const int4*>(experts + i);
        const int other[4] = {others.x, others.y, others.z, others.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            s.less += other[j] < mine;
            s.same += other[j] == mine;
            s.before += other[j] == mine && i + j < item;
        }
    }
    return s;
}

__device__ __forceinline__ void put(const Routing& r, int pair, int row) {
    r.place[pair] = row;
    if (row < 0) return;
    r.gather[row] = pair / r.picks;
    r.row_weights[row] = r.weights[pair];
}

}  // namespace dsv4::experts
