#include "trt/creator.h"

#include <list>

#include "op_schema.h"

namespace dsv4::trt {
namespace {

void refuse(const char* op, const char* name, const char* what) noexcept {
    char text[2048];
    std::snprintf(text, sizeof text, "plugin '%s' for '%s' can not be created: %s", op, name ? name : "", what);
    log_error(text);
}

struct AllCreators {
    std::list<Creator> made;  // which stay where they are
    std::vector<nvinfer1::IPluginCreatorInterface*> pointers;

    AllCreators() {
        int32_t index = 0;
        for (const schema::Op& op : schema::ops) {
            if (dsv4_find_op(op.name, &index) == 0) pointers.push_back(&made.emplace_back(op));
        }
    }
};

}  // namespace

Creator::Creator(const schema::Op& op) : op_(op), fields_(field_names(op)) {
    collection_ = {static_cast<int32_t>(fields_.size()), fields_.data()};
}

nvinfer1::IPluginV3* Creator::createPlugin(const char* name, const nvinfer1::PluginFieldCollection* fields,
                                           nvinfer1::TensorRTPhase phase) noexcept {
    try {
        return new Plugin(op_, fields, phase);
    } catch (const std::exception& error) {
        refuse(op_.name, name, error.what());
    } catch (...) {
        refuse(op_.name, name, "an unknown exception");
    }
    return nullptr;
}

const std::vector<nvinfer1::IPluginCreatorInterface*>& creators() {
    static const AllCreators all;
    return all.pointers;
}

}  // namespace dsv4::trt
