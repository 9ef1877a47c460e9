#include "expressions.h"

#include <algorithm>
#include <cctype>

namespace dsv4::harness {

using nvinfer1::DimensionOperation;
using nvinfer1::IDimensionExpr;

const Expression* ExpressionBuilder::keep(std::unique_ptr<Expression> made) {
    return made_.emplace_back(std::move(made)).get();
}

const Expression* ExpressionBuilder::of(const std::string& text) {
    const bool is_number = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return std::isdigit(c) || c == '-';
    });
    return keep(is_number ? std::make_unique<Expression>(std::stoll(text)) : std::make_unique<Expression>(text));
}

const IDimensionExpr* ExpressionBuilder::constant(int64_t value) { return keep(std::make_unique<Expression>(value)); }

const IDimensionExpr* ExpressionBuilder::operation(DimensionOperation which, const IDimensionExpr& left,
                                                   const IDimensionExpr& right) {
    const int64_t a = left.getConstantValue(), b = right.getConstantValue();
    const bool known = left.isConstant() && right.isConstant();
    const std::string texts[] = {static_cast<const Expression&>(left).text(),
                                 static_cast<const Expression&>(right).text()};
    const auto result = [&](int64_t value, const char* sign) {
        if (known) return keep(std::make_unique<Expression>(value));
        return keep(std::make_unique<Expression>(texts[0] + sign + texts[1]));
    };
    switch (which) {
        case DimensionOperation::kSUM: return result(a + b, "+");
        case DimensionOperation::kPROD: return result(a * b, "*");
        case DimensionOperation::kFLOOR_DIV: return b == 0 && known ? nullptr : result(known ? a / b : 0, "/");
        default: return nullptr;
    }
}

}  // namespace dsv4::harness
