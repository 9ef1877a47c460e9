// How an op folder takes a call apart and joins the library.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "common/abi.h"
#include "common/device.h"

namespace dsv4 {

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

[[noreturn]] inline void fail(const char* format, ...) {
    char text[8192];  // some name a file by its path
    va_list args;
    va_start(args, format);
    std::vsnprintf(text, sizeof text, format, args);
    va_end(args);
    throw Error(text);
}

#define DSV4_REQUIRE(condition, ...)                \
    do {                                            \
        if (!(condition)) ::dsv4::fail(__VA_ARGS__); \
    } while (0)

// Raises unless a call of the CUDA runtime succeeded; the message begins with `what`.
inline void check_cuda(cudaError_t status, const char* what) {
    if (status != cudaSuccess) fail("%s: %s", what, cudaGetErrorString(status));
}

// Call after every kernel launch.
inline void check_launch(const char* kernel) {
    cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess) fail("launch of %s: %s", kernel, cudaGetErrorString(status));
}

struct Call {
    const Dsv4Call& raw;

    const Dsv4Tensor& in(int index) const { return raw.inputs[index]; }
    const Dsv4Tensor& out(int index) const { return raw.outputs[index]; }
    bool has(int input) const { return raw.inputs[input].rank != 0; }
    int64_t integer(int attr) const { return raw.attrs[attr].i; }
    float real(int attr) const { return static_cast<float>(raw.attrs[attr].f); }
    bool is(int attr, const char* value) const { return std::string(raw.attrs[attr].s) == value; }
    const char* text(int attr) const { return raw.attrs[attr].s; }
};

template <class T>
T* data(const Dsv4Tensor& tensor) {
    return static_cast<T*>(tensor.data);
}

// Whether an address is a multiple of `bytes`, for kernels with a path of wide accesses.
inline bool aligned(const void* address, int bytes) { return reinterpret_cast<uintptr_t>(address) % bytes == 0; }

inline int64_t elements(const Dsv4Tensor& tensor) {
    int64_t count = 1;
    for (int i = 0; i < tensor.rank; ++i) count *= tensor.shape[i];
    return count;
}

// Raises unless the tensor is dense in row-major order.
inline void require_dense(const Dsv4Tensor& tensor, const char* name) {
    if (elements(tensor) == 0) return;
    int64_t stride = 1;
    for (int i = tensor.rank - 1; i >= 0; --i) {
        DSV4_REQUIRE(tensor.stride[i] == stride || tensor.shape[i] <= 1,
                     "'%s' has stride %lld in dimension %d; expected %lld (a dense tensor)", name,
                     static_cast<long long>(tensor.stride[i]), i, static_cast<long long>(stride));
        stride *= tensor.shape[i];
    }
}

using WorkspaceFunction = size_t (*)(const Call&);
using LaunchFunction = void (*)(const Call&, void* workspace, cudaStream_t);

inline constexpr struct NoWorkspace {} no_workspace;

// One static instance in each op's launch.cu puts the op into the library.
//
// `bound` is for who reserves workspace once for calls of many sizes: at least what every call needs whose sizes are
// at most those of the one that it gets, with the same attributes and dtypes, on every device of device().capability
// with at most kMostMultiprocessors. A workspace that only grows with every size, the device apart, is its own bound.
struct Registration {
    Registration(const char* name, WorkspaceFunction workspace, LaunchFunction launch, WorkspaceFunction bound);
    Registration(const char* name, NoWorkspace, LaunchFunction launch);
};

constexpr int ceil_div(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

}  // namespace dsv4
