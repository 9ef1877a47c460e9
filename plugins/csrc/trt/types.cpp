#include "trt/types.h"

#include <cstring>

namespace dsv4::trt {
namespace {

using nvinfer1::DataType;
using schema::DTypeRule;

// What a type variable stands for, -1 for nothing. A byte is e4m3: no op takes raw bytes by a variable.
int32_t variable_type(DataType found) {
    switch (found) {
        case DataType::kFLOAT: return DSV4_F32;
        case DataType::kBF16: return DSV4_BF16;
        case DataType::kINT32: return DSV4_I32;
        case DataType::kINT8: return DSV4_F8_E4M3;
        default: return -1;
    }
}

}  // namespace

const char* name_of(DataType type) {
    static constexpr const char* names[] = {"FLOAT", "HALF",  "INT8", "INT32", "BOOL", "UINT8",
                                            "FP8",   "BF16",  "INT64", "INT4", "FP4",  "E8M0"};
    const int index = static_cast<int>(type);
    return index >= 0 && index < static_cast<int>(std::size(names)) ? names[index] : "of an unknown type";
}

DataType shown_type(int32_t dtype) {
    switch (dtype) {
        case DSV4_F32: return DataType::kFLOAT;
        case DSV4_BF16: return DataType::kBF16;
        case DSV4_I32: return DataType::kINT32;
        default: return DataType::kINT8;
    }
}

// -1 for a first type that a variable can not have.
int32_t Types::expected(const schema::Param& param, DataType found) {
    if (param.dtype.kind != DTypeRule::kVariable) return output(param);
    int32_t& variable = variables_[param.dtype.number];
    if (variable < 0) variable = variable_type(found);
    return variable;
}

bool Types::input_fits(const schema::Param& param, DataType found) {
    const int32_t dtype = expected(param, found);
    return dtype >= 0 && shown_type(dtype) == found;
}

int32_t Types::input(const schema::Param& param, DataType found) {
    const int32_t dtype = expected(param, found);
    DSV4_REQUIRE(dtype >= 0 && shown_type(dtype) == found, "input '%s' of op '%s' is %s; expected %s", param.name,
                 attributes_.op().name, name_of(found),
                 dtype < 0 ? "FLOAT, BF16, INT32 or INT8" : name_of(shown_type(dtype)));
    return dtype;
}

int32_t Types::output(const schema::Param& param) const {
    switch (param.dtype.kind) {
        case DTypeRule::kVariable: return variables_[param.dtype.number];
        case DTypeRule::kChosen: return chosen(param.dtype);
        default: return param.dtype.number;
    }
}

int32_t Types::chosen(const DTypeRule& rule) const {
    const char* value = attributes_.text_of(rule.number);
    for (const schema::ChosenType& type : rule.types) {
        if (std::strcmp(type.value, value) == 0) return type.dtype;
    }
    fail("op '%s' has no type for '%s'", attributes_.op().name, value);
}

}  // namespace dsv4::trt
