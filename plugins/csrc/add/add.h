#pragma once
#include "common/op.h"

namespace dsv4::add {

struct Params {
    const float* a;     // [count]
    const void* b;      // [count]
    void* out;          // [count]
    int64_t count;
    int64_t vectors;    // whole vectors of 8 among them; the rest goes one by one
};

}  // namespace dsv4::add
