// Shapes of a call: names of dimensions get sizes from inputs, outputs get shapes from names. Sizes are numbers where
// a call is run or planned, and TensorRT's expressions where a network is made.
#pragma once

#include <optional>
#include <string>

#include "trt/attributes.h"

namespace dsv4::trt {

// Sizes as numbers.
struct Numbers {
    using Size = int64_t;

    Size constant(int64_t value) const { return value; }
    std::optional<int64_t> known(Size size) const { return size; }
    Size combine(char, Size, Size) const { return 0; }  // known sizes need none
};

// Sizes as TensorRT's expressions, of which some are constant.
struct Expressions {
    using Size = const nvinfer1::IDimensionExpr*;
    nvinfer1::IExprBuilder& builder;

    Size constant(int64_t value) const;
    std::optional<int64_t> known(Size size) const;
    Size combine(char operation, Size left, Size right) const;  // '*' or '/'
};

// Equal names must have equal sizes and quotients must be whole, as far as sizes are known; the rest shows when a call
// is run. `dims` are in the order that TensorRT is shown: see Param::order.
template <class Arithmetic>
class Shapes {
public:
    using Size = typename Arithmetic::Size;

    explicit Shapes(const Attributes& attributes, Arithmetic arithmetic = {});

    // Inputs come in their order. Raises, with what was found and expected, for a shape that does not fit.
    void input(const schema::Param& param, int rank, const Size* dims);

    // After all inputs: writes at most DSV4_MAX_RANK sizes and returns how many.
    int output(const schema::Param& param, Size* dims) const;

private:
    Size value(const schema::Param& param, const schema::Dim& dim) const;
    Size applied(const schema::Param& param, const schema::Dim& dim, char operation, Size left, Size right) const;
    void lead(const schema::Param& param, int count, const Size* dims);
    void expect(const schema::Param& param, const char* dim, Size found, Size expected, int rank,
                const Size* dims) const;
    std::string text(int rank, const Size* dims) const;

    const Attributes& attributes_;
    Arithmetic arithmetic_;
    std::optional<Size> names_[schema::kMostNames];
    std::optional<int> num_leading_;
    Size leading_[DSV4_MAX_RANK];
};

}  // namespace dsv4::trt
