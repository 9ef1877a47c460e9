#pragma once
#include "common/op.h"

namespace dsv4::embed {

struct Params {
    const int32_t* token_ids;   // [tokens]
    const void* weight;         // bf16 [vocabulary, width]
    const int32_t* row_offset;  // the first id of the slice
    void* out;                  // [tokens, width]
    int64_t tokens, vocabulary;
    int width;
    int parts;                  // blocks that share one row
};

}  // namespace dsv4::embed
