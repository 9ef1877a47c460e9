// Sums and gathers over ranks: NCCL does them, on the caller's stream, and what it can not do comes around it.
//
// The bits of a sum are the same on every rank (NCCL: "leaves identical copies of result on each recvbuff"), but
// the order in which ranks are added, and so the last bit, is NCCL's choice and may differ between sizes.
#include "collective/collective.h"
#include "collective/communicator.h"
#include "op_table.h"

namespace dsv4::collective {
namespace {

constexpr int32_t kNcclSuccess = 0;  // as in nccl.h
constexpr int32_t kNcclFloat32 = 7;
constexpr int32_t kNcclSum = 0;

void check(const Dsv4Communicator& ranks, int32_t result, const char* what) {
    DSV4_REQUIRE(result == kNcclSuccess, "%s: %s", what, ranks.error_string(result));
}

void require_shape(const Dsv4Tensor& tensor, const char* name, int64_t rows, int64_t cols) {
    DSV4_REQUIRE(tensor.rank == 2 && tensor.shape[0] == rows && tensor.shape[1] == cols,
                 "'%s' is [%lld, %lld] in %d dimensions; expected [%lld, %lld]", name,
                 static_cast<long long>(tensor.shape[0]), static_cast<long long>(tensor.shape[1]), tensor.rank,
                 static_cast<long long>(rows), static_cast<long long>(cols));
    require_dense(tensor, name);
}

// The sum lies in the output if that is fp32, else in the workspace.
size_t reduce_workspace(const Call& call) {
    const Dsv4Tensor& out = call.out(table::all_reduce::out::out);
    return out.dtype == DSV4_F32 ? 0 : elements(out) * sizeof(float);
}

void reduce(const Call& call, void* workspace, cudaStream_t stream) {
    using namespace table::all_reduce;
    const Dsv4Tensor& x = call.in(in::x);
    const Dsv4Tensor& out = call.out(out::out);
    for (const int32_t dtype : {x.dtype, out.dtype}) {
        DSV4_REQUIRE(dtype == DSV4_F32 || dtype == DSV4_BF16, "dtype %d; expected fp32 (%d) or bf16 (%d)", dtype,
                     DSV4_F32, DSV4_BF16);
    }
    require_shape(x, "x", x.shape[0], x.shape[1]);
    require_shape(out, "out", x.shape[0], x.shape[1]);
    const Dsv4Communicator ranks = communicator();
    const int64_t count = elements(x);
    if (count == 0) return;
    float* sum = out.dtype == DSV4_F32 ? data<float>(out) : static_cast<float*>(workspace);
    const void* own = x.data;
    if (x.dtype == DSV4_BF16) {
        widen(x.data, sum, count, stream);
        own = sum;
    }
    check(ranks, ranks.all_reduce(own, sum, count, kNcclFloat32, kNcclSum, ranks.comm, stream), "ncclAllReduce");
    if (out.dtype == DSV4_BF16) narrow(sum, out.data, count, stream);
}

// Ranks one behind the other are the output already if there is one rank or one row.
bool gathers_into_output(const Call& call) {
    using namespace table::all_gather;
    return call.integer(attr::world_size) == 1 || call.in(in::x).shape[0] <= 1;
}

size_t gather_workspace(const Call& call) {
    return gathers_into_output(call) ? 0 : elements(call.out(table::all_gather::out::out)) * sizeof(float);
}

void gather(const Call& call, void* workspace, cudaStream_t stream) {
    using namespace table::all_gather;
    const Dsv4Tensor& x = call.in(in::x);
    const Dsv4Tensor& out = call.out(out::out);
    const int64_t world_size = call.integer(attr::world_size), rows = x.shape[0], cols = x.shape[1];
    DSV4_REQUIRE(x.dtype == DSV4_F32 && out.dtype == DSV4_F32, "dtypes %d and %d; expected fp32 (%d)", x.dtype,
                 out.dtype, DSV4_F32);
    require_shape(x, "x", rows, cols);
    require_shape(out, "out", rows, cols * world_size);
    const Dsv4Communicator ranks = communicator();
    DSV4_REQUIRE(ranks.world_size == world_size, "the communicator has %d ranks; expected %lld, the world_size",
                 ranks.world_size, static_cast<long long>(world_size));
    if (elements(x) == 0) return;
    float* gathered = gathers_into_output(call) ? data<float>(out) : static_cast<float*>(workspace);
    check(ranks, ranks.all_gather(x.data, gathered, elements(x), kNcclFloat32, ranks.comm, stream), "ncclAllGather");
    if (gathered != out.data) interleave(gathered, data<float>(out), ranks.world_size, rows, cols, stream);
}

const Registration reduce_registration("all_reduce", reduce_workspace, reduce, reduce_workspace);
const Registration gather_registration("all_gather", gather_workspace, gather, gather_workspace);

}  // namespace
}  // namespace dsv4::collective
