// Makes plugins of one op.
#pragma once

#include <vector>

#include "trt/plugin.h"

namespace dsv4::trt {

class Creator final : public nvinfer1::IPluginCreatorV3One {
public:
    explicit Creator(const schema::Op& op);

    // nullptr, and an error to the logger, unless the fields are exactly the op's attributes.
    nvinfer1::IPluginV3* createPlugin(const char* name, const nvinfer1::PluginFieldCollection* fields,
                                      nvinfer1::TensorRTPhase phase) noexcept override;
    const nvinfer1::PluginFieldCollection* getFieldNames() noexcept override { return &collection_; }
    const char* getPluginName() const noexcept override { return op_.name; }
    const char* getPluginVersion() const noexcept override { return kVersion; }
    const char* getPluginNamespace() const noexcept override { return kNamespace; }

private:
    const schema::Op& op_;
    std::vector<nvinfer1::PluginField> fields_;
    nvinfer1::PluginFieldCollection collection_;
};

// One of each op that the library has, as long as the library lives.
const std::vector<nvinfer1::IPluginCreatorInterface*>& creators();

}  // namespace dsv4::trt
