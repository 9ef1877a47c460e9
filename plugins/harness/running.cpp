// What becomes of a plugin in a plan that runs: stored, attached to contexts, launched.
#include "stages.h"

namespace dsv4::harness {

struct Context final : nvinfer1::IPluginResourceContext {
    ~Context() noexcept override = default;
    nvinfer1::IGpuAllocator* getGpuAllocator() const noexcept override { return nullptr; }
    nvinfer1::IErrorRecorder* getErrorRecorder() const noexcept override { return &recorder; }

    mutable Recorder recorder;
};

}  // namespace dsv4::harness

using namespace dsv4::harness;

const Fields* dsv4_harness_serialized(Plugin* plugin) {
    auto* asked = runtime(plugin);
    return asked ? asked->getFieldsToSerialize() : nullptr;
}

Context* dsv4_harness_context() { return new Context; }

void dsv4_harness_destroy_context(Context* context) { delete context; }

const char* dsv4_harness_context_errors(Context* context) { return kept(context->recorder.take()); }

int32_t dsv4_harness_context_references(Context* context) { return context->recorder.references(); }

Plugin* dsv4_harness_attach(Plugin* plugin, Context* context) {
    auto* asked = runtime(plugin);
    return asked ? asked->attachToContext(context) : nullptr;
}

int32_t dsv4_harness_shape_change(Plugin* plugin, const Desc* inputs, int32_t num_inputs, const Desc* outputs,
                                  int32_t num_outputs) {
    auto* asked = runtime(plugin);
    return asked ? asked->onShapeChange(inputs, num_inputs, outputs, num_outputs) : -1;
}

int32_t dsv4_harness_enqueue(Plugin* plugin, const Desc* input_descs, const Desc* output_descs,
                             const void* const* inputs, void* const* outputs, void* workspace, void* stream) {
    auto* asked = runtime(plugin);
    return asked ? asked->enqueue(input_descs, output_descs, inputs, outputs, workspace,
                                  static_cast<cudaStream_t>(stream))
                 : -1;
}
