// What an op's table entry says, as constexpr data; `plugins/schema_header.py` writes the entries (op_schema.h) and
// `plugins/op_schema.py` has the rules in words.
#pragma once

#include <cstdint>

namespace dsv4::schema {

template <class T, int N>
struct List {
    int size;
    T items[N];

    constexpr const T* begin() const { return items; }
    constexpr const T* end() const { return items + size; }
    constexpr const T& operator[](int index) const { return items[index]; }
};

enum class AttrType { kInt, kBool, kFloat, kText };

struct Attribute {
    const char* name;
    AttrType type;
    List<const char*, 8> choices;  // of a text; none: any
};

struct ChosenType {
    const char* value;
    int32_t dtype;  // Dsv4DType
};

struct DTypeRule {
    enum Kind {
        kFixed,     // always the Dsv4DType `number`
        kVariable,  // the same for all parameters with variable `number`
        kChosen,    // by the text of attribute `number`
    };
    Kind kind;
    int number;
    List<ChosenType, 8> types;
};

// A dimension is a product and exact quotient, from the left: {'*', name or -1, number}, {'/', ...}. A single name
// takes the size that it is first seen with.
struct Term {
    char operation;
    int name;  // index into Op::names; -1: `number`
    int64_t number;
};

struct Dim {
    const char* text;
    List<Term, 4> terms;

    constexpr bool is_name() const { return terms.size == 1 && terms[0].name >= 0; }
};

struct AttrValue {  // the member that the attribute's type says
    int64_t number;
    const char* text;
};

struct Condition {
    int attribute;  // -1: always
    List<AttrValue, 4> values;
};

struct Param {
    const char* name;
    DTypeRule dtype;
    bool leading;  // any dimensions ahead of `shape`
    List<Dim, 4> shape;
    Condition when;
    List<int, 4> order;  // dimensions from the slowest to the fastest in memory; none: as they stand
};

struct DimensionName {
    const char* text;
    int attribute;  // of type int, that gives it; -1: an input does
};

struct Alias {
    int output, input;
};

constexpr int kMostInputs = 16, kMostOutputs = 8, kMostNames = 32;

struct Op {
    const char* name;
    List<Param, kMostInputs> inputs;
    List<Param, kMostOutputs> outputs;
    List<Attribute, 16> attributes;
    List<DimensionName, kMostNames> names;
    List<Alias, 4> aliases;
    bool collective;
};

}  // namespace dsv4::schema
