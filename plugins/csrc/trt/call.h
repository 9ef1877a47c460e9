// A call of the op library, from tensors as TensorRT describes them.
#pragma once

#include "trt/shapes.h"
#include "trt/types.h"

namespace dsv4::trt {

// What a plugin with these attributes has of its op: which inputs and outputs, in the table's order.
class Parts {
public:
    explicit Parts(const Attributes& attributes);

    int num_inputs() const { return inputs_.size; }
    int num_outputs() const { return outputs_.size; }
    const schema::Param& input(int index) const { return attributes_.op().inputs[inputs_.items[index]]; }
    const schema::Param& output(int index) const { return attributes_.op().outputs[outputs_.items[index]]; }
    int place_of_input(int index) const { return inputs_.items[index]; }
    int place_of_output(int index) const { return outputs_.items[index]; }

    // The input that an output overwrites, -1 for none.
    int aliased_input(int output) const;

    // Raises unless a plugin has so many.
    void expect(int num_inputs, int num_outputs) const;

private:
    const Attributes& attributes_;
    schema::List<int, schema::kMostInputs> inputs_ = {};
    schema::List<int, schema::kMostOutputs> outputs_ = {};
};

struct Arguments {
    Dsv4Tensor inputs[schema::kMostInputs] = {};
    Dsv4Tensor outputs[schema::kMostOutputs] = {};
    Dsv4Call call = {};

    Arguments(int op, const Attributes& attributes);
    Arguments(const Arguments&) = delete;
    Arguments& operator=(const Arguments&) = delete;
};

// A tensor that lies dense in memory with the dimensions that TensorRT is shown; the op sees them in its own order.
Dsv4Tensor tensor(const schema::Param& param, int32_t dtype, int rank, const int64_t* dims, void* data);

}  // namespace dsv4::trt
