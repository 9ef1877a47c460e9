// The C interface of the op library: what the native engine, TensorRT plugins and tests call.
//
// An op is called with all tensors of its table entry, in the table's order; one that a call does not
// have (see `when` in the table) is an entry with `data == nullptr` and `rank == 0`. An aliased output has
// the address of its input. No launch allocates or synchronises, and every one can be captured.
#pragma once

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DSV4_EXPORT __attribute__((visibility("default")))
#define DSV4_ABI_VERSION 3
#define DSV4_MAX_RANK 4

enum Dsv4DType { DSV4_F32 = 0, DSV4_BF16 = 1, DSV4_F8_E4M3 = 2, DSV4_I32 = 3, DSV4_I8 = 4 };

typedef struct Dsv4Tensor {
    void* data;                     // device address
    int32_t dtype;                  // Dsv4DType
    int32_t rank;
    int64_t shape[DSV4_MAX_RANK];
    int64_t stride[DSV4_MAX_RANK];  // in elements
} Dsv4Tensor;

typedef struct Dsv4Attr {           // the member that the table's type of the attribute says
    int64_t i;                      // int; bool as 0 or 1
    double f;                       // float
    const char* s;                  // str
} Dsv4Attr;

typedef struct Dsv4Call {
    int32_t op;                     // from dsv4_find_op
    int32_t reserved;
    const Dsv4Tensor* inputs;
    const Dsv4Tensor* outputs;
    const Dsv4Attr* attrs;
} Dsv4Call;

// One op call of a whole network: what it waits for, where it runs, what others wait for.
#define DSV4_MAX_WAITS 4
typedef struct Dsv4Launch {
    Dsv4Call call;
    void* workspace;
    size_t workspace_bytes;
    int32_t stream;                 // index into the streams of dsv4_run
    int32_t record;                 // index of the event to record behind it, -1 for none
    int32_t num_waits;
    int32_t waits[DSV4_MAX_WAITS];  // indices of events that come before it
} Dsv4Launch;

// All return 0, or 1 with a message in dsv4_last_error() of the calling thread.
DSV4_EXPORT int32_t dsv4_find_op(const char* name, int32_t* op);
DSV4_EXPORT int32_t dsv4_workspace(const Dsv4Call* call, size_t* bytes);  // from shapes, dtypes and attributes alone
DSV4_EXPORT int32_t dsv4_launch(const Dsv4Call* call, void* workspace, size_t workspace_bytes, cudaStream_t stream);

// For plans made ahead, where the device need not be here. What a call needs on a device of a compute capability (90
// for sm_90a) with so many multiprocessors:
DSV4_EXPORT int32_t dsv4_workspace_on(const Dsv4Call* call, int32_t capability, int32_t multiprocessors, size_t* bytes);

// What is enough for every call whose sizes are at most those of `largest`, with its attributes and dtypes, on every
// device of that capability. 0: the one that dsv4_plan_for said last, in any thread; else the current device's.
DSV4_EXPORT int32_t dsv4_workspace_bound(const Dsv4Call* largest, int32_t capability, size_t* bytes);
DSV4_EXPORT int32_t dsv4_plan_for(int32_t capability);  // 0: nothing in particular

// Sets `workspace_bytes` of every launch from its call.
DSV4_EXPORT int32_t dsv4_workspaces(Dsv4Launch* launches, int32_t count);

// Puts a network on its streams; stops at the first launch that fails.
DSV4_EXPORT int32_t dsv4_run(const Dsv4Launch* launches, int32_t count, const cudaStream_t* streams,
                             const cudaEvent_t* events);

// target[places[i]] = values[i], all int32 on the device: what changed in block tables since the last step.
DSV4_EXPORT int32_t dsv4_scatter(int32_t* target, const int32_t* places, const int32_t* values, int32_t count,
                                 cudaStream_t stream);

// Bytes of a file, and the device address that they go to.
typedef struct Dsv4FilePart {
    int64_t start;                  // in the file, in bytes
    size_t bytes;
    void* target;                   // device address
} Dsv4FilePart;

// Copies parts of a file to the current device by `readers` threads, through `staging`, pinned memory in which each
// has two buffers; returns when all is there. The one function here that makes threads and streams, and waits.
DSV4_EXPORT int32_t dsv4_copy_file(const char* path, const Dsv4FilePart* parts, int64_t count, void* staging,
                                   size_t staging_bytes, int32_t readers);

// A rank's part in a group of processes, one a rank, and the NCCL that made it: no NCCL is linked.
typedef struct Dsv4Communicator {
    void* comm;                     // ncclComm_t
    int32_t rank, world_size;
    int32_t device;                 // the CUDA device that it was made for
    int32_t reserved;
    // ncclAllReduce, ncclAllGather, ncclGetErrorString; NCCL's enums (result, type, operation) are ints
    int32_t (*all_reduce)(const void* from, void* to, size_t count, int32_t type, int32_t operation, void* comm,
                          cudaStream_t stream);
    int32_t (*all_gather)(const void* from, void* to, size_t count_of_a_rank, int32_t type, void* comm,
                          cudaStream_t stream);
    const char* (*error_string)(int32_t result);
} Dsv4Communicator;

// What all_reduce and all_gather of this process run on from now on; the struct is copied. There is one at a time:
// setting another is an error before the first is cleared, and so is clearing it while something still holds it.
DSV4_EXPORT int32_t dsv4_set_communicator(const Dsv4Communicator* communicator);
DSV4_EXPORT int32_t dsv4_clear_communicator(void);

DSV4_EXPORT const char* dsv4_last_error(void);
DSV4_EXPORT const char* dsv4_op_table(void);    // JSON, as `plugins/ops` writes it; the ops that this library has
DSV4_EXPORT int32_t dsv4_abi_version(void);
DSV4_EXPORT const char* dsv4_tensorrt_version(void);  // of the headers that plugins are built with; "" without them

#ifdef __cplusplus
}
#endif
