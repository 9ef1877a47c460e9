#include "trt/communicator.h"

#include <NvInferRuntime.h>
#include <dlfcn.h>

#include "collective/communicator.h"
#include "common/op.h"
#include "trt/log.h"

namespace dsv4::trt {
namespace {

constexpr char kKey[] = "dsv4.communicator";

// The registry keeps a clone, and releases it with the last who acquired it.
class Resource final : public nvinfer1::IPluginResource {
public:
    nvinfer1::IPluginResource* clone() noexcept override {
        try {
            collective::retain();
        } catch (const std::exception& error) {
            log_error(error.what());
            return nullptr;
        }
        return new (std::nothrow) Resource;
    }
    int32_t release() noexcept override {
        collective::release();
        return 0;
    }
};

// The registry of whichever TensorRT is loaded; there is no link to any.
nvinfer1::IPluginRegistry* registry() {
    for (const char* name : {"libnvinfer.so.11", "libnvinfer_lean.so.11", "libtensorrt_rtx.so.1"}) {
        void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
        if (!library) continue;
        const auto get = reinterpret_cast<nvinfer1::IPluginRegistry* (*)()>(dlsym(library, "getPluginRegistry"));
        dlclose(library);  // only counted; it stays loaded
        if (get) return get();
    }
    return nullptr;
}

}  // namespace

// Held before the registry is asked: it would remember a clone that failed, and give it to all who come later.
CommunicatorHold::CommunicatorHold() : registry_(registry()) {
    collective::retain();
    if (!registry_) return;
    Resource resource;
    const bool found = static_cast<nvinfer1::IPluginRegistry*>(registry_)->acquirePluginResource(kKey, &resource);
    collective::release();
    DSV4_REQUIRE(found, "TensorRT's plugin registry gave no resource '%s'", kKey);
}

CommunicatorHold::~CommunicatorHold() {
    if (registry_) static_cast<nvinfer1::IPluginRegistry*>(registry_)->releasePluginResource(kKey);
    else collective::release();
}

}  // namespace dsv4::trt
