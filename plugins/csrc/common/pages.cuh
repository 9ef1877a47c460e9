// Where entries lie in pages; the layout is that of `kv_layout`. Offsets are 64-bit.
//
// A page id that is negative or beyond the pool names no page: nothing is read or written there.
#pragma once

#include "common/op.h"

namespace dsv4 {

// One layer's rows of a block table.
struct BlockTable {
    const int32_t* ids;
    int64_t row_stride, column_stride;
    int rows, columns;

    static BlockTable of(const Dsv4Tensor& table, int64_t layer_row) {
        DSV4_REQUIRE(table.rank == 3 && layer_row >= 0 && layer_row < table.shape[0],
                     "layer row %lld of a block table of rank %d with %lld layers",
                     static_cast<long long>(layer_row), table.rank, static_cast<long long>(table.shape[0]));
        return {data<const int32_t>(table) + layer_row * table.stride[0], table.stride[1], table.stride[2],
                static_cast<int>(table.shape[1]), static_cast<int>(table.shape[2])};
    }

    // The page id in a column, -1 if there is no such row or column.
    __device__ int page(int row, int column) const {
        if (row < 0 || row >= rows || column < 0 || column >= columns) return -1;
        return ids[row * row_stride + column * column_stride];
    }
};

// The pages of one bucket.
struct Pool {
    uint8_t* bytes;
    int64_t num_pages, page_bytes;

    static Pool of(const Dsv4Tensor& pool) {
        DSV4_REQUIRE(pool.rank == 2 && pool.stride[1] == 1, "a pool is a dense [pages, bytes] tensor");
        return {data<uint8_t>(pool), pool.shape[0], pool.stride[0]};
    }

    __device__ bool has(int page) const { return page >= 0 && page < num_pages; }
    __device__ uint8_t* at(int page) const { return bytes + page * page_bytes; }
};

// Fields of an entry: all entries' first fields lie before all second fields.
struct EntryLayout {
    int row_bytes, scale_bytes, per_page;

    __device__ int64_t row(int entry) const { return int64_t(entry) * row_bytes; }
    __device__ int64_t scales(int entry) const {
        return int64_t(per_page) * row_bytes + int64_t(entry) * scale_bytes;
    }
};

// Which token rows of a ragged step are whose; see `contract.step_inputs`.
struct Step {
    const int32_t *positions, *seq_ids, *table_rows, *query_start, *seq_lens;
    int num_tokens, num_seqs;

    static Step of(const Dsv4Tensor& positions, const Dsv4Tensor& seq_ids, const Dsv4Tensor& table_rows,
                   const Dsv4Tensor& query_start, const Dsv4Tensor& seq_lens) {
        return {data<const int32_t>(positions),   data<const int32_t>(seq_ids),  data<const int32_t>(table_rows),
                data<const int32_t>(query_start), data<const int32_t>(seq_lens), static_cast<int>(positions.shape[0]),
                static_cast<int>(seq_lens.shape[0])};
    }

    // The sequence of a token row, -1 for padding.
    __device__ int seq(int token) const {
        const int id = seq_ids[token];
        return id >= 0 && id < num_seqs ? id : -1;
    }
    // Tokens that a sequence held before the step.
    __device__ int start(int seq) const { return seq_lens[seq] - (query_start[seq + 1] - query_start[seq]); }
};

}  // namespace dsv4
