#include "trt/call.h"

#include <algorithm>

namespace dsv4::trt {

Parts::Parts(const Attributes& attributes) : attributes_(attributes) {
    const schema::Op& op = attributes.op();
    for (int i = 0; i < op.inputs.size; ++i) {
        if (attributes.has(op.inputs[i])) inputs_.items[inputs_.size++] = i;
    }
    for (int i = 0; i < op.outputs.size; ++i) {
        if (attributes.has(op.outputs[i])) outputs_.items[outputs_.size++] = i;
    }
}

int Parts::aliased_input(int output) const {
    for (const schema::Alias& alias : attributes_.op().aliases) {
        if (alias.output != outputs_.items[output]) continue;
        return static_cast<int>(std::find(inputs_.begin(), inputs_.end(), alias.input) - inputs_.begin());
    }
    return -1;
}

void Parts::expect(int num_inputs, int num_outputs) const {
    std::string names;
    for (int i = 0; i < inputs_.size; ++i) names += std::string(i ? ", " : "") + input(i).name;
    DSV4_REQUIRE(num_inputs == inputs_.size, "op '%s' has %d inputs; with these attributes expected %d: %s",
                 attributes_.op().name, num_inputs, inputs_.size, names.c_str());
    DSV4_REQUIRE(num_outputs == outputs_.size, "op '%s' has %d outputs; with these attributes expected %d",
                 attributes_.op().name, num_outputs, outputs_.size);
}

Arguments::Arguments(int op, const Attributes& attributes) { call = {op, 0, inputs, outputs, attributes.values()}; }

Dsv4Tensor tensor(const schema::Param& param, int32_t dtype, int rank, const int64_t* dims, void* data) {
    DSV4_REQUIRE(rank >= 1 && rank <= DSV4_MAX_RANK, "'%s' has %d dimensions; expected 1 to %d", param.name, rank,
                 DSV4_MAX_RANK);
    Dsv4Tensor made = {};
    made.data = data, made.dtype = dtype, made.rank = rank;
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; --i) {
        const int logical = param.order.size ? param.order[i] : i;
        made.shape[logical] = dims[i];
        made.stride[logical] = stride;
        stride *= dims[i];
    }
    return made;
}

}  // namespace dsv4::trt
