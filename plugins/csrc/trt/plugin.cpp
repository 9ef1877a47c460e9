#include "trt/plugin.h"

#include <algorithm>

namespace dsv4::trt {

using nvinfer1::ErrorCode;
using nvinfer1::IPluginV3;
using nvinfer1::PluginCapabilityType;

namespace {

// getWorkspaceSize has no status: no memory is as large as this, so that the build can not go on with too little.
constexpr size_t kNoWorkspace = size_t(1) << 62;

void require_linear(const schema::Param& param, const nvinfer1::PluginTensorDesc& desc) {
    DSV4_REQUIRE(desc.format == nvinfer1::TensorFormat::kLINEAR, "'%s' has format %d; expected LINEAR", param.name,
                 static_cast<int>(desc.format));
}

// Says how much workspace it needs, since TensorRT does not say how much there is: what was planned is a bound for
// every device that the plan was made for.
void launch(const Dsv4Call& call, void* workspace, cudaStream_t stream) {
    size_t bytes = 0;
    DSV4_REQUIRE(dsv4_workspace(&call, &bytes) == 0, "%s", dsv4_last_error());
    if (bytes) {
        DSV4_REQUIRE(workspace, "no workspace was given; expected %zu bytes", bytes);
        DSV4_REQUIRE(device().multiprocessors <= kMostMultiprocessors,
                     "the device has %d multiprocessors; workspaces are planned for at most %d",
                     device().multiprocessors, kMostMultiprocessors);
    }
    DSV4_REQUIRE(dsv4_launch(&call, workspace, bytes, stream) == 0, "%s", dsv4_last_error());
}

}  // namespace

Plugin::Model::Model(const schema::Op& entry, const nvinfer1::PluginFieldCollection* fields)
    : attributes(entry, fields), parts(attributes) {
    DSV4_REQUIRE(dsv4_find_op(entry.name, &op) == 0, "%s", dsv4_last_error());
}

Plugin::Plugin(const schema::Op& op, const nvinfer1::PluginFieldCollection* fields, nvinfer1::TensorRTPhase phase)
    : model_(std::make_shared<const Model>(op, fields)), builds_(phase == nvinfer1::TensorRTPhase::kBUILD) {}

Plugin::Plugin(const Plugin& other, Recorder recorder, std::shared_ptr<const CommunicatorHold> communicator)
    : model_(other.model_), builds_(other.builds_), recorder_(recorder), communicator_(std::move(communicator)) {}

template <class Result, class Body>
Result Plugin::guarded(const char* method, ErrorCode code, Result failed, Body body) const noexcept {
    try {
        return body();
    } catch (const std::exception& error) {
        report(method, code, error.what());
    } catch (...) {
        report(method, code, "an unknown exception");
    }
    return failed;
}

void Plugin::report(const char* method, ErrorCode code, const char* what) const noexcept {
    char text[8192];
    std::snprintf(text, sizeof text, "plugin '%s' (%s): %s: %s", op().name, attributes().description(), method, what);
    log_error(text);
    recorder_.report(code, text);
}

nvinfer1::IPluginCapability* Plugin::getCapabilityInterface(PluginCapabilityType type) noexcept {
    switch (type) {
        case PluginCapabilityType::kCORE: return static_cast<nvinfer1::IPluginV3OneCore*>(this);
        case PluginCapabilityType::kBUILD:
            return builds_ ? static_cast<nvinfer1::IPluginV3OneBuildV2*>(this) : nullptr;
        case PluginCapabilityType::kRUNTIME: return static_cast<nvinfer1::IPluginV3OneRuntime*>(this);
    }
    return nullptr;
}

IPluginV3* Plugin::clone() noexcept {
    return guarded<IPluginV3*>("clone", ErrorCode::kFAILED_ALLOCATION, nullptr,
                               [&] { return new Plugin(*this, recorder_, communicator_); });
}

IPluginV3* Plugin::attachToContext(nvinfer1::IPluginResourceContext* context) noexcept {
    const Plugin attached(*this, Recorder(context ? context->getErrorRecorder() : nullptr), nullptr);
    // what goes wrong is the context's to know
    return attached.guarded<IPluginV3*>("attachToContext", ErrorCode::kFAILED_INITIALIZATION, nullptr, [&] {
        const bool launches = op().collective && !builds_;  // a builder's contexts do not
        return new Plugin(attached, attached.recorder_,
                          launches ? std::make_shared<const CommunicatorHold>() : nullptr);
    });
}

int32_t Plugin::getOutputDataTypes(DataType* outputs, int32_t num_outputs, const DataType* inputs,
                                   int32_t num_inputs) const noexcept {
    return guarded("getOutputDataTypes", ErrorCode::kINVALID_CONFIG, 1, [&] {
        const Parts& parts = model_->parts;
        parts.expect(num_inputs, num_outputs);
        Types types(attributes());
        for (int i = 0; i < num_inputs; ++i) types.input(parts.input(i), inputs[i]);
        for (int i = 0; i < num_outputs; ++i) outputs[i] = shown_type(types.output(parts.output(i)));
        return 0;
    });
}

int32_t Plugin::getOutputShapes(const DimsExprs* inputs, int32_t num_inputs, const DimsExprs*,
                                int32_t num_shape_inputs, DimsExprs* outputs, int32_t num_outputs,
                                nvinfer1::IExprBuilder& builder) noexcept {
    return guarded("getOutputShapes", ErrorCode::kINVALID_CONFIG, 1, [&] {
        const Parts& parts = model_->parts;
        parts.expect(num_inputs, num_outputs);
        DSV4_REQUIRE(num_shape_inputs == 0, "%d shape inputs; expected none", num_shape_inputs);
        Shapes<Expressions> shapes(attributes(), {builder});
        for (int i = 0; i < num_inputs; ++i) shapes.input(parts.input(i), inputs[i].nbDims, inputs[i].d);
        for (int i = 0; i < num_outputs; ++i) outputs[i].nbDims = shapes.output(parts.output(i), outputs[i].d);
        return 0;
    });
}

bool Plugin::supportsFormatCombination(int32_t position, const RangeDesc* tensors, int32_t num_inputs,
                                       int32_t num_outputs) noexcept {
    return guarded("supportsFormatCombination", ErrorCode::kINVALID_CONFIG, false, [&] {
        const Parts& parts = model_->parts;
        parts.expect(num_inputs, num_outputs);
        if (tensors[position].desc.format != nvinfer1::TensorFormat::kLINEAR) return false;
        Types types(attributes());
        for (int i = 0; i < std::min(position + 1, num_inputs); ++i) {
            if (!types.input_fits(parts.input(i), tensors[i].desc.type)) return false;
        }
        if (position < num_inputs) return true;
        return tensors[position].desc.type == shown_type(types.output(parts.output(position - num_inputs)));
    });
}

int32_t Plugin::getAliasedInput(int32_t output) noexcept {
    return guarded("getAliasedInput", ErrorCode::kINVALID_ARGUMENT, -1, [&] {
        DSV4_REQUIRE(output >= 0 && output < model_->parts.num_outputs(), "output %d; expected 0 to %d", output,
                     model_->parts.num_outputs() - 1);
        return model_->parts.aliased_input(output);
    });
}

// Most workspace of any call in the ranges; what is wrong with these shows here too.
size_t Plugin::planned_workspace(const RangeDesc* inputs, int32_t num_inputs, int32_t num_outputs) const {
    const Parts& parts = model_->parts;
    parts.expect(num_inputs, num_outputs);
    Arguments largest(model_->op, attributes());
    Types types(attributes());
    Shapes<Numbers> shapes(attributes()), least(attributes());
    for (int i = 0; i < num_inputs; ++i) {
        const schema::Param& param = parts.input(i);
        require_linear(param, inputs[i].desc);
        const int32_t dtype = types.input(param, inputs[i].desc.type);
        shapes.input(param, inputs[i].max.nbDims, inputs[i].max.d);
        least.input(param, inputs[i].min.nbDims, inputs[i].min.d);
        largest.inputs[parts.place_of_input(i)] =
            tensor(param, dtype, inputs[i].max.nbDims, inputs[i].max.d, nullptr);
    }
    for (int i = 0; i < num_outputs; ++i) {
        int64_t dims[DSV4_MAX_RANK];
        const int rank = shapes.output(parts.output(i), dims);
        largest.outputs[parts.place_of_output(i)] =
            tensor(parts.output(i), types.output(parts.output(i)), rank, dims, nullptr);
    }
    size_t bytes = 0;
    DSV4_REQUIRE(dsv4_workspace_bound(&largest.call, 0, &bytes) == 0, "%s", dsv4_last_error());
    return bytes;
}

int32_t Plugin::configurePlugin(const RangeDesc* inputs, int32_t num_inputs, const RangeDesc*,
                                int32_t num_outputs) noexcept {
    return guarded("configurePlugin", ErrorCode::kINVALID_CONFIG, 1, [&] {
        planned_workspace(inputs, num_inputs, num_outputs);  // refused here, where there is a status
        return 0;
    });
}

size_t Plugin::getWorkspaceSize(const RangeDesc* inputs, int32_t num_inputs, const RangeDesc*,
                                int32_t num_outputs) const noexcept {
    return guarded("getWorkspaceSize", ErrorCode::kINVALID_CONFIG, kNoWorkspace,
                   [&] { return planned_workspace(inputs, num_inputs, num_outputs); });
}

void Plugin::check_descs(const Desc* inputs, int32_t num_inputs, const Desc* outputs, int32_t num_outputs) const {
    const Parts& parts = model_->parts;
    parts.expect(num_inputs, num_outputs);
    Types types(attributes());
    Shapes<Numbers> shapes(attributes());
    for (int i = 0; i < num_inputs; ++i) {
        require_linear(parts.input(i), inputs[i]);
        types.input(parts.input(i), inputs[i].type);
        shapes.input(parts.input(i), inputs[i].dims.nbDims, inputs[i].dims.d);
    }
    for (int i = 0; i < num_outputs; ++i) {
        const schema::Param& param = parts.output(i);
        int64_t dims[DSV4_MAX_RANK];
        const int rank = shapes.output(param, dims);
        const bool same = rank == outputs[i].dims.nbDims && std::equal(dims, dims + rank, outputs[i].dims.d);
        DSV4_REQUIRE(same && outputs[i].type == shown_type(types.output(param)),
                     "output '%s' has another type or shape than follows from the inputs", param.name);
        require_linear(param, outputs[i]);
    }
}

int32_t Plugin::onShapeChange(const Desc* inputs, int32_t num_inputs, const Desc* outputs,
                              int32_t num_outputs) noexcept {
    return guarded("onShapeChange", ErrorCode::kINVALID_CONFIG, 1, [&] {
        check_descs(inputs, num_inputs, outputs, num_outputs);
        return 0;
    });
}

// Shapes were checked when they changed: what is left is to name tensors and launch.
int32_t Plugin::enqueue(const Desc* input_descs, const Desc* output_descs, const void* const* inputs,
                        void* const* outputs, void* workspace, cudaStream_t stream) noexcept {
    return guarded("enqueue", ErrorCode::kFAILED_EXECUTION, 1, [&] {
        const Parts& parts = model_->parts;
        Arguments arguments(model_->op, attributes());
        Types types(attributes());
        for (int i = 0; i < parts.num_inputs(); ++i) {
            const nvinfer1::Dims& dims = input_descs[i].dims;
            const int32_t dtype = types.input(parts.input(i), input_descs[i].type);
            arguments.inputs[parts.place_of_input(i)] =
                tensor(parts.input(i), dtype, dims.nbDims, dims.d, const_cast<void*>(inputs[i]));
        }
        for (int i = 0; i < parts.num_outputs(); ++i) {
            const nvinfer1::Dims& dims = output_descs[i].dims;
            const int source = parts.aliased_input(i);
            DSV4_REQUIRE(source < 0 || outputs[i] == inputs[source],
                         "output '%s' is at another address than input '%s', which it overwrites",
                         parts.output(i).name, parts.input(source).name);
            arguments.outputs[parts.place_of_output(i)] =
                tensor(parts.output(i), types.output(parts.output(i)), dims.nbDims, dims.d, outputs[i]);
        }
        launch(arguments.call, workspace, stream);
        return 0;
    });
}

}  // namespace dsv4::trt
