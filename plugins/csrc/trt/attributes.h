// An op's attributes, as TensorRT gives and stores them and as the op takes them.
#pragma once

#include <NvInferRuntime.h>

#include <string>
#include <vector>

#include "common/op.h"
#include "trt/schema.h"

namespace dsv4::trt {

class Attributes {
public:
    // Takes every attribute from a field of its name: int from INT32 or INT64, bool from the same with 0 or 1, float
    // from FLOAT32 or FLOAT64, text from CHAR. Raises for a field that is missing, not known, there twice, of another
    // type or of a value that its attribute can not have.
    Attributes(const schema::Op& op, const nvinfer1::PluginFieldCollection* fields);
    Attributes(const Attributes&) = delete;
    Attributes& operator=(const Attributes&) = delete;

    const schema::Op& op() const { return op_; }
    const Dsv4Attr* values() const { return values_.data(); }
    const char* text_of(int attribute) const { return values_[attribute].s; }
    int64_t number_of(int attribute) const { return values_[attribute].i; }

    // Whether a call with these attributes has the parameter.
    bool has(const schema::Param& param) const;

    // INT32, FLOAT32 and CHAR fields, from which equal attributes come.
    const nvinfer1::PluginFieldCollection* fields() const { return &collection_; }

    // "eps=1e-06, num_heads=64, ...": for people.
    const char* description() const { return description_.c_str(); }

private:
    void take(int attribute, const nvinfer1::PluginField& field);
    void write_fields();
    void describe();

    const schema::Op& op_;
    std::vector<Dsv4Attr> values_;    // [attributes]
    std::vector<std::string> texts_;  // [attributes]
    std::vector<int32_t> ints_;       // [attributes], as stored; so are the floats
    std::vector<float> floats_;
    std::vector<nvinfer1::PluginField> fields_;
    nvinfer1::PluginFieldCollection collection_ = {};
    std::string description_;
};

// The fields that a plugin of an op is made from, with their types and without values.
std::vector<nvinfer1::PluginField> field_names(const schema::Op& op);

}  // namespace dsv4::trt
