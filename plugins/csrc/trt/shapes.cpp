#include "trt/shapes.h"

namespace dsv4::trt {

using nvinfer1::DimensionOperation;
using nvinfer1::IDimensionExpr;

const IDimensionExpr* Expressions::constant(int64_t value) const {
    const IDimensionExpr* made = builder.constant(value);
    DSV4_REQUIRE(made, "TensorRT made no expression of %lld", static_cast<long long>(value));
    return made;
}

std::optional<int64_t> Expressions::known(const IDimensionExpr* size) const {
    if (!size->isConstant()) return std::nullopt;
    return size->getConstantValue();
}

const IDimensionExpr* Expressions::combine(char operation, Size left, Size right) const {
    const auto wanted = operation == '*' ? DimensionOperation::kPROD : DimensionOperation::kFLOOR_DIV;
    const IDimensionExpr* made = builder.operation(wanted, *left, *right);
    DSV4_REQUIRE(made, "TensorRT made no expression of two sizes");
    return made;
}

template <class Arithmetic>
Shapes<Arithmetic>::Shapes(const Attributes& attributes, Arithmetic arithmetic)
    : attributes_(attributes), arithmetic_(arithmetic) {
    const auto& names = attributes.op().names;
    for (int i = 0; i < names.size; ++i) {
        if (names[i].attribute >= 0) names_[i] = arithmetic_.constant(attributes.number_of(names[i].attribute));
    }
}

template <class Arithmetic>
void Shapes<Arithmetic>::input(const schema::Param& param, int rank, const Size* dims) {
    const char* op = attributes_.op().name;
    const int trailing = param.shape.size, leading = rank - trailing;
    DSV4_REQUIRE(leading == 0 || (param.leading && leading > 0),
                 "input '%s' of op '%s' has %d dimensions; expected %d%s", param.name, op, rank, trailing,
                 param.leading ? " or more" : "");
    DSV4_REQUIRE(rank <= DSV4_MAX_RANK, "input '%s' of op '%s' has %d dimensions; expected at most %d", param.name, op,
                 rank, DSV4_MAX_RANK);
    if (param.leading) lead(param, leading, dims);
    for (int i = 0; i < trailing; ++i) {
        const int logical = param.order.size ? param.order[i] : i;
        const schema::Dim& dim = param.shape[logical];
        const Size found = dims[leading + i];
        if (dim.is_name()) {
            std::optional<Size>& name = names_[dim.terms[0].name];
            if (!name) name = found;
            expect(param, dim.text, found, *name, rank, dims);
            if (!arithmetic_.known(*name)) name = found;  // which may be known
        } else {
            expect(param, dim.text, found, value(param, dim), rank, dims);
        }
    }
}

template <class Arithmetic>
void Shapes<Arithmetic>::lead(const schema::Param& param, int count, const Size* dims) {
    if (!num_leading_) {
        num_leading_ = count;
        for (int i = 0; i < count; ++i) leading_[i] = dims[i];
    }
    DSV4_REQUIRE(*num_leading_ == count, "input '%s' of op '%s' has %d leading dimensions; expected %d", param.name,
                 attributes_.op().name, count, *num_leading_);
    for (int i = 0; i < count; ++i) expect(param, "...", dims[i], leading_[i], count, dims);
}

template <class Arithmetic>
int Shapes<Arithmetic>::output(const schema::Param& param, Size* dims) const {
    int rank = 0;
    const int leading = param.leading ? num_leading_.value_or(0) : 0;
    DSV4_REQUIRE(leading + param.shape.size <= DSV4_MAX_RANK, "output '%s' of op '%s' has %d dimensions", param.name,
                 attributes_.op().name, leading + param.shape.size);
    for (; rank < leading; ++rank) dims[rank] = leading_[rank];
    for (int i = 0; i < param.shape.size; ++i) {
        dims[rank++] = value(param, param.shape[param.order.size ? param.order[i] : i]);
    }
    return rank;
}

template <class Arithmetic>
auto Shapes<Arithmetic>::value(const schema::Param& param, const schema::Dim& dim) const -> Size {
    std::optional<Size> result;
    for (const schema::Term& term : dim.terms) {
        DSV4_REQUIRE(term.name < 0 || names_[term.name], "dimension '%s' of '%s' of op '%s' has no size", dim.text,
                     param.name, attributes_.op().name);
        const Size operand = term.name < 0 ? arithmetic_.constant(term.number) : *names_[term.name];
        result = result ? applied(param, dim, term.operation, *result, operand) : operand;
    }
    return *result;
}

template <class Arithmetic>
auto Shapes<Arithmetic>::applied(const schema::Param& param, const schema::Dim& dim, char operation, Size left,
                                 Size right) const -> Size {
    const auto a = arithmetic_.known(left), b = arithmetic_.known(right);
    if (!a || !b) return arithmetic_.combine(operation, left, right);
    int64_t product = 0;
    const bool fits = operation == '*' ? !__builtin_mul_overflow(*a, *b, &product) : *b != 0 && *a % *b == 0;
    DSV4_REQUIRE(fits, "dimension '%s' of '%s' of op '%s' is %lld %c %lld; expected a whole number", dim.text,
                 param.name, attributes_.op().name, static_cast<long long>(*a), operation, static_cast<long long>(*b));
    return arithmetic_.constant(operation == '*' ? product : *a / *b);
}

template <class Arithmetic>
void Shapes<Arithmetic>::expect(const schema::Param& param, const char* dim, Size found, Size expected, int rank,
                                const Size* dims) const {
    const auto a = arithmetic_.known(found), b = arithmetic_.known(expected);
    DSV4_REQUIRE(!a || *a >= 0, "input '%s' of op '%s' has shape %s; expected no negative size", param.name,
                 attributes_.op().name, text(rank, dims).c_str());
    DSV4_REQUIRE(!a || !b || *a == *b, "input '%s' of op '%s' has shape %s; dimension '%s' is %lld, expected %lld",
                 param.name, attributes_.op().name, text(rank, dims).c_str(), dim, static_cast<long long>(*a),
                 static_cast<long long>(*b));
}

template <class Arithmetic>
std::string Shapes<Arithmetic>::text(int rank, const Size* dims) const {
    std::string shown;
    for (int i = 0; i < rank; ++i) {
        const auto size = arithmetic_.known(dims[i]);
        shown += (i ? ", " : "") + (size ? std::to_string(*size) : std::string("?"));
    }
    return "[" + shown + "]";
}

template class Shapes<Numbers>;
template class Shapes<Expressions>;

}  // namespace dsv4::trt
