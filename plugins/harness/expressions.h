// Sizes of dimensions as a plugin sees them while a network is made: numbers, names, and what it calculates.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness.h"

namespace dsv4::harness {

// A number, or a text that stands for what is not known yet.
class Expression final : public nvinfer1::IDimensionExpr, private nvinfer1::apiv::VDimensionExpr {
public:
    explicit Expression(int64_t value) : Expression(true, value, std::to_string(value)) {}
    explicit Expression(std::string text) : Expression(false, 0, std::move(text)) {}
    ~Expression() noexcept override = default;

    const std::string& text() const { return text_; }

private:
    Expression(bool known, int64_t value, std::string text) : known_(known), value_(value), text_(std::move(text)) {
        mImpl = this;
    }
    bool isConstant() const override { return known_; }
    int64_t getConstantValue() const override { return value_; }
    bool isSizeTensor() const override { return false; }

    bool known_;
    int64_t value_;
    std::string text_;
};

// Owns all that it makes. Sums, products and floor divisions; null for the rest, which no plugin of ours asks for.
class ExpressionBuilder final : public nvinfer1::IExprBuilder, private nvinfer1::apiv::VExprBuilder {
public:
    ExpressionBuilder() { mImpl = this; }
    ~ExpressionBuilder() noexcept override = default;

    const Expression* of(const std::string& text);  // a number or a name

private:
    const nvinfer1::IDimensionExpr* constant(int64_t value) override;
    const nvinfer1::IDimensionExpr* operation(nvinfer1::DimensionOperation which, const nvinfer1::IDimensionExpr& left,
                                              const nvinfer1::IDimensionExpr& right) override;
    const nvinfer1::IDimensionExpr* declareSizeTensor(int32_t, const nvinfer1::IDimensionExpr&,
                                                      const nvinfer1::IDimensionExpr&) override {
        return nullptr;
    }
    const Expression* keep(std::unique_ptr<Expression> made);

    std::vector<std::unique_ptr<Expression>> made_;
};

}  // namespace dsv4::harness
