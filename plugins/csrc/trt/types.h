// Element types. TensorRT-RTX refuses networks with both INT8 and FP8 tensors, so that all types of one byte are INT8
// to TensorRT: pools, scales and packed fp4, and e4m3 too. Which is which the op's table entry says.
#pragma once

#include "trt/attributes.h"

namespace dsv4::trt {

const char* name_of(nvinfer1::DataType type);

// As TensorRT is shown a Dsv4DType.
nvinfer1::DataType shown_type(int32_t dtype);

// The Dsv4DTypes of a call's tensors, from TensorRT's types of its inputs.
class Types {
public:
    explicit Types(const Attributes& attributes) : attributes_(attributes) {}

    // Inputs come in their order. Raises if the type is not what the table asks for.
    int32_t input(const schema::Param& param, nvinfer1::DataType found);
    bool input_fits(const schema::Param& param, nvinfer1::DataType found);  // or answers so

    // After all inputs.
    int32_t output(const schema::Param& param) const;

private:
    int32_t chosen(const schema::DTypeRule& rule) const;
    int32_t expected(const schema::Param& param, nvinfer1::DataType found);

    static constexpr int kVariables = 4;
    const Attributes& attributes_;
    int32_t variables_[kVariables] = {-1, -1, -1, -1};
};

}  // namespace dsv4::trt
