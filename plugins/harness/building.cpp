// What TensorRT asks of a plugin while a network is made and a plan is built.
#include <algorithm>

#include "expressions.h"
#include "stages.h"

using namespace dsv4::harness;

namespace {

nvinfer1::DimsExprs expressions(const Shape& shape, ExpressionBuilder& builder) {
    nvinfer1::DimsExprs made = {};
    made.nbDims = shape.rank;
    for (int i = 0; i < std::min(shape.rank, kMostDims); ++i) made.d[i] = builder.of(shape.dims[i]);
    return made;
}

Shape text_of(const nvinfer1::DimsExprs& dims) {
    Shape shape = {};
    shape.rank = dims.nbDims;
    for (int i = 0; i < std::min(dims.nbDims, kMostDims); ++i) {
        const std::string& text = static_cast<const Expression*>(dims.d[i])->text();
        text.copy(shape.dims[i], sizeof shape.dims[i] - 1);
    }
    return shape;
}

}  // namespace

int32_t dsv4_harness_num_outputs(Plugin* plugin) {
    auto* asked = build(plugin);
    return asked ? asked->getNbOutputs() : -1;
}

int32_t dsv4_harness_num_tactics(Plugin* plugin) {
    auto* asked = build(plugin);
    return asked ? asked->getNbTactics() : -1;
}

int32_t dsv4_harness_format_limit(Plugin* plugin) {
    auto* asked = build(plugin);
    return asked ? asked->getFormatCombinationLimit() : -1;
}

const char* dsv4_harness_timing_cache_id(Plugin* plugin) {
    auto* asked = build(plugin);
    return asked ? asked->getTimingCacheID() : nullptr;
}

const char* dsv4_harness_metadata(Plugin* plugin) {
    auto* asked = build(plugin);
    return asked ? asked->getMetadataString() : nullptr;
}

int32_t dsv4_harness_output_types(Plugin* plugin, const int32_t* inputs, int32_t num_inputs, int32_t* outputs,
                                  int32_t num_outputs) {
    auto* asked = build(plugin);
    return asked ? asked->getOutputDataTypes(reinterpret_cast<nvinfer1::DataType*>(outputs), num_outputs,
                                             reinterpret_cast<const nvinfer1::DataType*>(inputs), num_inputs)
                 : -1;
}

int32_t dsv4_harness_output_shapes(Plugin* plugin, const Shape* inputs, int32_t num_inputs, Shape* outputs,
                                   int32_t num_outputs) {
    auto* asked = build(plugin);
    if (!asked) return -1;
    ExpressionBuilder builder;
    std::vector<nvinfer1::DimsExprs> given, found(num_outputs);
    for (int32_t i = 0; i < num_inputs; ++i) given.push_back(expressions(inputs[i], builder));
    const int32_t status =
        asked->getOutputShapes(given.data(), num_inputs, nullptr, 0, found.data(), num_outputs, builder);
    for (int32_t i = 0; i < num_outputs && status == 0; ++i) outputs[i] = text_of(found[i]);
    return status;
}

int32_t dsv4_harness_supports(Plugin* plugin, int32_t position, const RangeDesc* tensors, int32_t num_inputs,
                              int32_t num_outputs) {
    auto* asked = build(plugin);
    return asked ? asked->supportsFormatCombination(position, tensors, num_inputs, num_outputs) : -1;
}

int32_t dsv4_harness_aliased_input(Plugin* plugin, int32_t output) {
    auto* asked = build(plugin);
    return asked ? asked->getAliasedInput(output) : -1;
}

int32_t dsv4_harness_configure(Plugin* plugin, const RangeDesc* inputs, int32_t num_inputs, const RangeDesc* outputs,
                               int32_t num_outputs) {
    auto* asked = build(plugin);
    return asked ? asked->configurePlugin(inputs, num_inputs, outputs, num_outputs) : -1;
}

int64_t dsv4_harness_workspace(Plugin* plugin, const RangeDesc* inputs, int32_t num_inputs, const RangeDesc* outputs,
                               int32_t num_outputs) {
    auto* asked = build(plugin);
    return asked ? static_cast<int64_t>(asked->getWorkspaceSize(inputs, num_inputs, outputs, num_outputs)) : -1;
}
