// TensorRT's side of a plugin without TensorRT: makes plugins of a library by their creators and takes them through
// every stage of their life. For tests, and for machines with a GPU on which TensorRT is not installed.
//
// Structures of TensorRT are passed as its headers have them. Every function that asks a plugin for something that its
// phase does not have, or is given null, returns null or -1 with the reason in dsv4_harness_messages(). One plugin may
// be used by several threads as far as TensorRT would do so.
#pragma once

#include <NvInferRuntime.h>

#define DSV4_HARNESS extern "C" __attribute__((visibility("default")))

namespace dsv4::harness {

constexpr int kMostDims = nvinfer1::Dims::MAX_DIMS;

// A shape as text: each dimension is a number, or the name of a run-time size, or an expression of these.
struct Shape {
    int32_t rank;
    char dims[kMostDims][64];
};

struct Library;
struct Context;
using Creator = nvinfer1::IPluginCreatorV3One;
using Plugin = nvinfer1::IPluginV3;
using Fields = nvinfer1::PluginFieldCollection;
using Desc = nvinfer1::PluginTensorDesc;
using RangeDesc = nvinfer1::DynamicPluginTensorDesc;

}  // namespace dsv4::harness

// What has been logged since the last call, by plugins and by the harness: a line each. Lives until the next call of
// the thread.
DSV4_HARNESS const char* dsv4_harness_messages();

// Loads a library as TensorRT does; null if it is none of plugins. It stays loaded.
DSV4_HARNESS dsv4::harness::Library* dsv4_harness_open(const char* path);
DSV4_HARNESS int32_t dsv4_harness_num_creators(const dsv4::harness::Library* library);
DSV4_HARNESS dsv4::harness::Creator* dsv4_harness_creator(const dsv4::harness::Library* library, int32_t index);
DSV4_HARNESS const char* dsv4_harness_creator_text(dsv4::harness::Creator* creator,
                                                   int32_t which);  // name, version, namespace
DSV4_HARNESS const dsv4::harness::Fields* dsv4_harness_creator_fields(dsv4::harness::Creator* creator);

// Plugins are the caller's to destroy. Phase 0 is that of building, 1 that of running.
DSV4_HARNESS dsv4::harness::Plugin* dsv4_harness_create(dsv4::harness::Creator* creator, const char* name,
                                                        const dsv4::harness::Fields* fields, int32_t phase);
DSV4_HARNESS dsv4::harness::Plugin* dsv4_harness_clone(dsv4::harness::Plugin* plugin);
DSV4_HARNESS void dsv4_harness_destroy(dsv4::harness::Plugin* plugin);

// Bits 0 to 2: whether it has what TensorRT calls core, build and runtime capability.
DSV4_HARNESS int32_t dsv4_harness_capabilities(dsv4::harness::Plugin* plugin);
DSV4_HARNESS const char* dsv4_harness_text(dsv4::harness::Plugin* plugin, int32_t which);  // name, version, namespace

// While a network is made and a plan is built.
DSV4_HARNESS int32_t dsv4_harness_num_outputs(dsv4::harness::Plugin* plugin);
DSV4_HARNESS int32_t dsv4_harness_num_tactics(dsv4::harness::Plugin* plugin);
DSV4_HARNESS int32_t dsv4_harness_format_limit(dsv4::harness::Plugin* plugin);
DSV4_HARNESS const char* dsv4_harness_timing_cache_id(dsv4::harness::Plugin* plugin);
DSV4_HARNESS const char* dsv4_harness_metadata(dsv4::harness::Plugin* plugin);
DSV4_HARNESS int32_t dsv4_harness_output_types(dsv4::harness::Plugin* plugin, const int32_t* inputs, int32_t num_inputs,
                                               int32_t* outputs, int32_t num_outputs);
DSV4_HARNESS int32_t dsv4_harness_output_shapes(dsv4::harness::Plugin* plugin, const dsv4::harness::Shape* inputs,
                                                int32_t num_inputs, dsv4::harness::Shape* outputs,
                                                int32_t num_outputs);
DSV4_HARNESS int32_t dsv4_harness_supports(dsv4::harness::Plugin* plugin, int32_t position,
                                           const dsv4::harness::RangeDesc* tensors, int32_t num_inputs,
                                           int32_t num_outputs);  // 1 or 0
DSV4_HARNESS int32_t dsv4_harness_aliased_input(dsv4::harness::Plugin* plugin, int32_t output);
DSV4_HARNESS int32_t dsv4_harness_configure(dsv4::harness::Plugin* plugin, const dsv4::harness::RangeDesc* inputs,
                                            int32_t num_inputs, const dsv4::harness::RangeDesc* outputs,
                                            int32_t num_outputs);
DSV4_HARNESS int64_t dsv4_harness_workspace(dsv4::harness::Plugin* plugin, const dsv4::harness::RangeDesc* inputs,
                                            int32_t num_inputs, const dsv4::harness::RangeDesc* outputs,
                                            int32_t num_outputs);

// What goes into a plan; lives as long as the plugin.
DSV4_HARNESS const dsv4::harness::Fields* dsv4_harness_serialized(dsv4::harness::Plugin* plugin);

// An execution context: what a plugin that is attached to it reports, and how many references it holds.
DSV4_HARNESS dsv4::harness::Context* dsv4_harness_context();
DSV4_HARNESS void dsv4_harness_destroy_context(dsv4::harness::Context* context);
DSV4_HARNESS const char* dsv4_harness_context_errors(dsv4::harness::Context* context);  // "code: text" a line; cleared
DSV4_HARNESS int32_t dsv4_harness_context_references(dsv4::harness::Context* context);
DSV4_HARNESS dsv4::harness::Plugin* dsv4_harness_attach(dsv4::harness::Plugin* plugin,
                                                        dsv4::harness::Context* context);

// While a plan runs.
DSV4_HARNESS int32_t dsv4_harness_shape_change(dsv4::harness::Plugin* plugin, const dsv4::harness::Desc* inputs,
                                               int32_t num_inputs, const dsv4::harness::Desc* outputs,
                                               int32_t num_outputs);
DSV4_HARNESS int32_t dsv4_harness_enqueue(dsv4::harness::Plugin* plugin, const dsv4::harness::Desc* input_descs,
                                          const dsv4::harness::Desc* output_descs, const void* const* inputs,
                                          void* const* outputs, void* workspace, void* stream);
