// The one plugin class: what it is to TensorRT follows from its op's table entry and its attributes.
#pragma once

#include <memory>

#include "trt/call.h"
#include "trt/communicator.h"
#include "trt/log.h"

namespace dsv4::trt {

constexpr char kNamespace[] = "dsv4", kVersion[] = "1";

// Never changes once it is made, so that clones share what they are made of, and threads may share a plugin. No
// exception leaves it: errors go to the logger, and to the error recorder of the context that it is attached to.
class Plugin final : public nvinfer1::IPluginV3,
                     public nvinfer1::IPluginV3OneCore,
                     public nvinfer1::IPluginV3OneBuildV2,
                     public nvinfer1::IPluginV3OneRuntime {
public:
    using DataType = nvinfer1::DataType;
    using Desc = nvinfer1::PluginTensorDesc;
    using RangeDesc = nvinfer1::DynamicPluginTensorDesc;
    using DimsExprs = nvinfer1::DimsExprs;

    // Raises as Attributes does.
    Plugin(const schema::Op& op, const nvinfer1::PluginFieldCollection* fields, nvinfer1::TensorRTPhase phase);

    nvinfer1::IPluginCapability* getCapabilityInterface(nvinfer1::PluginCapabilityType type) noexcept override;
    nvinfer1::IPluginV3* clone() noexcept override;

    const char* getPluginName() const noexcept override { return op().name; }
    const char* getPluginVersion() const noexcept override { return kVersion; }
    const char* getPluginNamespace() const noexcept override { return kNamespace; }

    int32_t getNbOutputs() const noexcept override { return model_->parts.num_outputs(); }
    int32_t getOutputDataTypes(DataType* outputs, int32_t num_outputs, const DataType* inputs,
                               int32_t num_inputs) const noexcept override;
    int32_t getOutputShapes(const DimsExprs* inputs, int32_t num_inputs, const DimsExprs* shape_inputs,
                            int32_t num_shape_inputs, DimsExprs* outputs, int32_t num_outputs,
                            nvinfer1::IExprBuilder& builder) noexcept override;
    bool supportsFormatCombination(int32_t position, const RangeDesc* tensors, int32_t num_inputs,
                                   int32_t num_outputs) noexcept override;
    int32_t getAliasedInput(int32_t output) noexcept override;
    int32_t configurePlugin(const RangeDesc* inputs, int32_t num_inputs, const RangeDesc* outputs,
                            int32_t num_outputs) noexcept override;
    size_t getWorkspaceSize(const RangeDesc* inputs, int32_t num_inputs, const RangeDesc* outputs,
                            int32_t num_outputs) const noexcept override;

    // Kernels are chosen by sizes and device in every launch, so that there is nothing for TensorRT to time: no
    // tactics (the default), one format, and nothing to keep in a timing cache.
    int32_t getFormatCombinationLimit() noexcept override { return 1; }
    const char* getTimingCacheID() noexcept override { return nullptr; }
    const char* getMetadataString() noexcept override { return attributes().description(); }

    int32_t onShapeChange(const Desc* inputs, int32_t num_inputs, const Desc* outputs,
                          int32_t num_outputs) noexcept override;
    int32_t enqueue(const Desc* input_descs, const Desc* output_descs, const void* const* inputs,
                    void* const* outputs, void* workspace, cudaStream_t stream) noexcept override;
    nvinfer1::IPluginV3* attachToContext(nvinfer1::IPluginResourceContext* context) noexcept override;
    const nvinfer1::PluginFieldCollection* getFieldsToSerialize() noexcept override { return attributes().fields(); }

private:
    struct Model {
        Model(const schema::Op& op, const nvinfer1::PluginFieldCollection* fields);

        Attributes attributes;
        Parts parts;
        int32_t op = 0;  // the library's number of it
    };

    Plugin(const Plugin& other, Recorder recorder, std::shared_ptr<const CommunicatorHold> communicator);

    const schema::Op& op() const { return model_->attributes.op(); }
    const Attributes& attributes() const { return model_->attributes; }

    size_t planned_workspace(const RangeDesc* inputs, int32_t num_inputs, int32_t num_outputs) const;
    void check_descs(const Desc* inputs, int32_t num_inputs, const Desc* outputs, int32_t num_outputs) const;

    // What `body` returns, or `failed` once its exception has been reported.
    template <class Result, class Body>
    Result guarded(const char* method, nvinfer1::ErrorCode code, Result failed, Body body) const noexcept;
    void report(const char* method, nvinfer1::ErrorCode code, const char* what) const noexcept;

    std::shared_ptr<const Model> model_;
    bool builds_;
    Recorder recorder_;
    std::shared_ptr<const CommunicatorHold> communicator_;  // of a collective's plugin that is attached to a context
};

}  // namespace dsv4::trt
