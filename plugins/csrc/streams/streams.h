#pragma once
#include "common/op.h"

namespace dsv4::streams {

struct Params {
    const void* x;        // [tokens, hidden]
    const void* streams;  // [tokens, count, hidden]; null: x is copied
    void* out;            // [tokens, count, hidden]
    int64_t tokens;
    int count, hidden;
};

}  // namespace dsv4::streams
