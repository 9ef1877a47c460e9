// One token a row of logits: see the table entry `sample`.
#pragma once

#include <stdint.h>

namespace dsv4::sample {

// Items of row r lie from start[r] to start[r + 1].
struct List {
    const int32_t* start;
    const int32_t* ids;
    const float* values;    // null: the list has none
    int count;              // of all rows
};

struct Params {
    const float* logits;
    const float* scales;        // [rows, 3]: temperature, min_p, repetition penalty
    const int32_t* doubles;     // [rows, 4]: bits of top_p and of the number to draw with
    const int32_t* limits;      // [rows, 3]: top_k, row of masks, how many top tokens
    const uint32_t* masks;      // [masked, words]
    List bias, seen, penalty;
    int32_t* token;
    float* logprob;
    int32_t* status;
    int32_t* top_ids;           // [rows, num_top]
    float* top_logprobs;
    float* changed;             // workspace [rows, vocab]: logits after the rules; null if there are no rules
    unsigned long long* candidates;     // workspace [rows, num_top]
    int64_t rows;
    int vocab, num_top, masked, words;
};

enum Status { kOk = 0, kNoNumber = 1, kNothingLeft = 2 };

}  // namespace dsv4::sample
