#include "trt/attributes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace dsv4::trt {
namespace {

using nvinfer1::PluginField;
using nvinfer1::PluginFieldType;
using schema::AttrType;

const char* type_name(AttrType type) {
    switch (type) {
        case AttrType::kInt: return "INT32";
        case AttrType::kBool: return "INT32 of 0 or 1";
        case AttrType::kFloat: return "FLOAT32";
        default: return "CHAR";
    }
}

PluginFieldType stored_type(AttrType type) {
    switch (type) {
        case AttrType::kFloat: return PluginFieldType::kFLOAT32;
        case AttrType::kText: return PluginFieldType::kCHAR;
        default: return PluginFieldType::kINT32;
    }
}

template <class T>
T read(const PluginField& field) {
    T value;
    std::memcpy(&value, field.data, sizeof value);  // TensorRT does not promise an alignment
    return value;
}

[[noreturn]] void refuse(const schema::Attribute& spec, const PluginField& field) {
    fail("field '%s' has type %d and length %d; expected one %s", spec.name, static_cast<int>(field.type),
         field.length, type_name(spec.type));
}

int64_t integer(const schema::Attribute& spec, const PluginField& field) {
    if (field.length != 1) refuse(spec, field);
    int64_t value = 0;
    if (field.type == PluginFieldType::kINT32) value = read<int32_t>(field);
    else if (field.type == PluginFieldType::kINT64) value = read<int64_t>(field);
    else refuse(spec, field);
    const bool is_bool = spec.type == AttrType::kBool;
    const int64_t least = is_bool ? 0 : INT32_MIN, most = is_bool ? 1 : INT32_MAX;
    DSV4_REQUIRE(value >= least && value <= most, "field '%s' is %lld; expected %lld to %lld", spec.name,
                 static_cast<long long>(value), static_cast<long long>(least), static_cast<long long>(most));
    return value;
}

float real(const schema::Attribute& spec, const PluginField& field) {
    if (field.length != 1) refuse(spec, field);
    if (field.type == PluginFieldType::kFLOAT32) return read<float>(field);
    if (field.type != PluginFieldType::kFLOAT64) refuse(spec, field);
    const double value = read<double>(field);
    const float rounded = static_cast<float>(value);
    DSV4_REQUIRE(std::isfinite(rounded) || !std::isfinite(value), "field '%s' is %g; expected an fp32 number",
                 spec.name, value);
    return rounded;
}

// The length may count a final zero.
std::string text(const schema::Attribute& spec, const PluginField& field) {
    if (field.type != PluginFieldType::kCHAR || field.length < 0) refuse(spec, field);
    std::string value(static_cast<const char*>(field.data), field.length);
    if (!value.empty() && value.back() == '\0') value.pop_back();
    if (spec.choices.size == 0) return value;
    std::string expected;
    for (const char* choice : spec.choices) {
        if (value == choice) return value;
        expected += std::string(expected.empty() ? "" : ", ") + choice;
    }
    fail("field '%s' is '%s'; expected one of %s", spec.name, value.c_str(), expected.c_str());
}

int place_of(const schema::Op& op, const char* name) {
    for (int i = 0; i < op.attributes.size; ++i) {
        if (std::strcmp(op.attributes[i].name, name) == 0) return i;
    }
    std::string known;
    for (const schema::Attribute& attribute : op.attributes) {
        known += std::string(known.empty() ? "" : ", ") + attribute.name;
    }
    fail("field '%s' is not known; expected %s", name, known.empty() ? "none" : known.c_str());
}

}  // namespace

Attributes::Attributes(const schema::Op& op, const nvinfer1::PluginFieldCollection* fields)
    : op_(op), values_(op.attributes.size), texts_(op.attributes.size), ints_(op.attributes.size),
      floats_(op.attributes.size) {
    const int count = fields ? fields->nbFields : 0;
    std::vector<bool> given(op.attributes.size);
    for (int i = 0; i < count; ++i) {
        const PluginField& field = fields->fields[i];
        DSV4_REQUIRE(field.name, "field %d has no name", i);
        const int place = place_of(op, field.name);
        DSV4_REQUIRE(!given[place], "field '%s' is there twice", field.name);
        DSV4_REQUIRE(field.data || field.length == 0, "field '%s' has no data", field.name);
        take(place, field);
        given[place] = true;
    }
    for (int i = 0; i < op.attributes.size; ++i) {
        DSV4_REQUIRE(given[i], "field '%s' is missing; expected one %s", op.attributes[i].name,
                     type_name(op.attributes[i].type));
    }
    write_fields();
    describe();
}

void Attributes::take(int attribute, const PluginField& field) {
    const schema::Attribute& spec = op_.attributes[attribute];
    switch (spec.type) {
        case AttrType::kFloat:
            floats_[attribute] = real(spec, field);
            values_[attribute].f = floats_[attribute];
            break;
        case AttrType::kText:
            texts_[attribute] = text(spec, field);
            values_[attribute].s = texts_[attribute].c_str();
            break;
        default:
            values_[attribute].i = integer(spec, field);
            ints_[attribute] = static_cast<int32_t>(values_[attribute].i);
    }
}

bool Attributes::has(const schema::Param& param) const {
    const schema::Condition& when = param.when;
    if (when.attribute < 0) return true;
    const Dsv4Attr& found = values_[when.attribute];
    const bool is_text = op_.attributes[when.attribute].type == AttrType::kText;
    return std::any_of(when.values.begin(), when.values.end(), [&](const schema::AttrValue& value) {
        return is_text ? std::strcmp(value.text, found.s) == 0 : value.number == found.i;
    });
}

void Attributes::write_fields() {
    for (int i = 0; i < op_.attributes.size; ++i) {
        const schema::Attribute& spec = op_.attributes[i];
        const PluginFieldType type = stored_type(spec.type);
        const void* data = spec.type == AttrType::kFloat  ? static_cast<const void*>(&floats_[i])
                           : spec.type == AttrType::kText ? static_cast<const void*>(texts_[i].data())
                                                          : static_cast<const void*>(&ints_[i]);
        const int32_t length = spec.type == AttrType::kText ? static_cast<int32_t>(texts_[i].size()) : 1;
        fields_.emplace_back(spec.name, data, type, length);
    }
    collection_ = {static_cast<int32_t>(fields_.size()), fields_.data()};
}

void Attributes::describe() {
    for (int i = 0; i < op_.attributes.size; ++i) {
        const schema::Attribute& spec = op_.attributes[i];
        char value[32];
        if (spec.type == AttrType::kFloat) std::snprintf(value, sizeof value, "%.9g", floats_[i]);
        else std::snprintf(value, sizeof value, "%d", ints_[i]);
        description_ += std::string(i ? ", " : "") + spec.name + "=";
        description_ += spec.type == AttrType::kText ? texts_[i] : value;
    }
}

std::vector<PluginField> field_names(const schema::Op& op) {
    std::vector<PluginField> fields;
    for (const schema::Attribute& spec : op.attributes) {
        fields.emplace_back(spec.name, nullptr, stored_type(spec.type), 1);
    }
    return fields;
}

}  // namespace dsv4::trt
