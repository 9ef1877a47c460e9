// The routed experts of this rank: order the picks by expert, two products, sum per token.
#include <algorithm>

#include "experts/experts.h"
#include "op_table.h"

namespace dsv4::experts {
namespace {

using namespace table::experts;

struct Sizes {
    int tokens, hidden, picks, pairs, experts, local, width;
    int dtype;  // of x and of everything between the products
};

Sizes sizes(const Call& call) {
    const Dsv4Tensor& x = call.in(in::x);
    const Dsv4Tensor& ids = call.in(in::expert_ids);
    const int64_t pairs = ids.shape[0] * ids.shape[1];
    DSV4_REQUIRE(pairs < 1 << 30, "%lld tokens are too many for one call", static_cast<long long>(ids.shape[0]));
    return {int(x.shape[0]), int(x.shape[1]), int(ids.shape[1]), int(pairs), int(call.in(in::expert_map).shape[0]),
            int(call.in(in::w13).shape[0]), int(call.integer(attr::width)), x.dtype};
}

size_t padded(size_t bytes) { return (bytes + 255) / 256 * 256; }

// Hands out parts of the workspace, each at a multiple of 256 bytes; counts only, without one.
struct Arena {
    char* base;
    size_t used = 0;

    template <class T = void>
    T* take(size_t bytes) {
        void* part = base ? base + used : nullptr;
        used += padded(bytes);
        return static_cast<T*>(part);
    }
};

struct Plan {
    Routing routing;
    gemm::Problem up, down;
    Combine combine;
    void* product_workspace;
    size_t bytes;
};

gemm::Problem product(const Call& call, const Sizes& s, const Routing& r, int weight, int scale) {
    gemm::Problem problem = {};
    problem.weight_format = call.is(attr::weight_format, "fp4") ? gemm::Weight::kE2M1 : gemm::Weight::kE4M3;
    problem.weight = call.in(weight).data;
    problem.scale = data<const uint8_t>(call.in(scale));
    problem.groups = s.local;
    problem.rows = static_cast<int>(call.in(weight).shape[1]);
    problem.x_dtype = problem.out_dtype = s.dtype;
    problem.act = call.is(attr::act, "none") ? gemm::Act::kNone : gemm::Act::kAct8;
    problem.tokens = s.pairs;
    problem.tiles = r.tiles;
    problem.num_tiles = r.num_tiles;
    problem.tile_tokens = r.tile_tokens;
    // a group has one tile that may be short; the others are full
    problem.max_tiles = std::min(s.local, s.pairs) + s.pairs / r.tile_tokens;
    return problem;
}

Routing routing(const Call& call, const Sizes& s, Arena& arena) {
    Routing r = {};
    r.expert_ids = data<const int32_t>(call.in(in::expert_ids));
    r.weights = data<const float>(call.in(in::weights));
    r.expert_map = data<const int32_t>(call.in(in::expert_map));
    r.pairs = s.pairs, r.picks = s.picks, r.experts = s.experts, r.local = s.local;
    r.tile_tokens = gemm::tile_tokens(s.pairs, s.local, s.dtype);
    const size_t tiles = std::min(s.local, s.pairs) + s.pairs / r.tile_tokens;
    r.place = arena.take<int32_t>(s.pairs * sizeof(int32_t));
    r.gather = arena.take<int32_t>(s.pairs * sizeof(int32_t));
    r.row_weights = arena.take<float>(s.pairs * sizeof(float));
    r.tiles = arena.take<gemm::Tile>(tiles * sizeof(gemm::Tile));
    r.num_tiles = arena.take<int32_t>(sizeof(int32_t));
    r.counts = arena.take<int32_t>(size_t(routing_blocks(s.pairs)) * s.local * sizeof(int32_t));
    return r;
}

Plan plan(const Call& call, const Sizes& s, void* workspace) {
    Arena arena = {static_cast<char*>(workspace)};
    const size_t element = s.dtype == DSV4_F32 ? 4 : 2;
    Plan p = {};
    p.routing = routing(call, s, arena);
    void* inner = arena.take(size_t(s.pairs) * s.width * element);
    void* y = arena.take(size_t(s.pairs) * s.hidden * element);

    p.up = product(call, s, p.routing, in::w13, in::w13_scale);
    p.up.depth = s.hidden;
    p.up.x = call.in(in::x).data;
    p.up.x_row_stride = s.hidden;
    p.up.x_rows = s.tokens;
    p.up.gather = p.routing.gather;
    p.up.epilogue = gemm::Epilogue::kSwiglu;
    p.up.swiglu_limit = call.real(attr::swiglu_limit);
    p.up.row_weights = p.routing.row_weights;
    p.up.out = inner;
    p.up.out_row_stride = s.width;

    p.down = product(call, s, p.routing, in::w2, in::w2_scale);
    p.down.depth = s.width;
    p.down.old_tiles = true;  // `up` has waited for them
    p.down.x = inner;
    p.down.x_row_stride = s.width;
    p.down.epilogue = gemm::Epilogue::kStore;
    p.down.out = y;
    p.down.out_row_stride = s.hidden;

    p.combine = {y, p.routing.place, data<float>(call.out(out::out)), s.tokens, s.picks, s.hidden, 0};
    // one product is done with it before the other begins
    p.product_workspace = arena.take(std::max(gemm::workspace(p.up), gemm::workspace(p.down)));
    p.bytes = arena.used;
    return p;
}

void check(const Call& call, const Sizes& s) {
    for (int i : {in::x, in::expert_ids, in::weights, in::expert_map, in::w13, in::w13_scale, in::w2, in::w2_scale}) {
        require_dense(call.in(i), "an input of experts");
    }
    require_dense(call.out(out::out), "out");
    const bool fp4 = call.is(attr::weight_format, "fp4");
    const int rows = fp4 ? 1 : 128, cols = fp4 ? 32 : 128;
    DSV4_REQUIRE(call.integer(attr::scale_rows) == rows && call.integer(attr::scale_cols) == cols &&
                     call.integer(attr::pack) == (fp4 ? 2 : 1),
                 "scales cover %d x %d weights, %d to an element; expected %d x %d and %d of %s",
                 int(call.integer(attr::scale_rows)), int(call.integer(attr::scale_cols)),
                 int(call.integer(attr::pack)), rows, cols, fp4 ? 2 : 1, call.text(attr::weight_format));
    const int unit = call.is(attr::act, "none") ? cols : 128;
    DSV4_REQUIRE(s.hidden % unit == 0 && s.width % unit == 0,
                 "hidden size %d and expert width %d must be multiples of %d", s.hidden, s.width, unit);
    DSV4_REQUIRE(s.local <= kMaxLocal, "there are %d local experts; expected at most %d", s.local, kMaxLocal);
}

void launch(const Call& call, void* workspace, cudaStream_t stream) {
    const Sizes s = sizes(call);
    check(call, s);
    if (s.pairs == 0 || s.local == 0) {
        const size_t bytes = size_t(s.tokens) * s.hidden * sizeof(float);
        if (bytes) check_cuda(cudaMemsetAsync(call.out(out::out).data, 0, bytes, stream), "clearing the output");
        return;
    }
    const Plan p = plan(call, s, workspace);
    route(p.routing, stream);
    gemm::run(p.up, p.product_workspace, stream);
    gemm::run(p.down, p.product_workspace, stream);
    combine(p.combine, s.dtype, stream);
}

size_t workspace(const Call& call) {
    const Sizes s = sizes(call);
    return s.pairs == 0 || s.local == 0 ? 0 : plan(call, s, nullptr).bytes;
}

// All parts grow with every size but two: fewer pairs may have shorter and so more tiles, and more blocks that route.
size_t bound(const Call& largest) {
    const Sizes s = sizes(largest);
    if (s.pairs == 0 || s.local == 0) return 0;
    const Plan p = plan(largest, s, nullptr);
    const size_t product = std::max(gemm::workspace(p.up), gemm::workspace(p.down));
    const size_t most = std::max(gemm::workspace_bound(p.up), gemm::workspace_bound(p.down));
    const size_t tiles = (std::min(s.local, s.pairs) + s.pairs / gemm::kLeastTileTokens) * sizeof(gemm::Tile);
    const size_t counts = size_t(most_routing_blocks(s.pairs)) * s.local * sizeof(int32_t);
    return p.bytes - padded(product) + padded(most) + padded(tiles) + padded(counts);
}

const Registration registration("experts", workspace, launch, bound);

}  // namespace
}  // namespace dsv4::experts
