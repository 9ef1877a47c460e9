#include "stages.h"

#include <cstring>

namespace dsv4::harness {
namespace {

using nvinfer1::PluginCapabilityType;

template <class Interface>
Interface* capability(Plugin* plugin, PluginCapabilityType type, const char* kind, int32_t version) {
    nvinfer1::IPluginCapability* found = plugin ? plugin->getCapabilityInterface(type) : nullptr;
    if (!found) {
        messages().add(std::string("HARNESS: the plugin has no capability ") + kind);
        return nullptr;
    }
    const nvinfer1::InterfaceInfo info = found->getInterfaceInfo();
    if (std::strcmp(info.kind, kind) != 0 || info.major != version) {
        messages().add(std::string("HARNESS: a capability is ") + info.kind + " " + std::to_string(info.major) +
                       "; expected " + kind + " " + std::to_string(version));
        return nullptr;
    }
    return static_cast<Interface*>(found);
}

}  // namespace

nvinfer1::IPluginV3OneCore* core(Plugin* plugin) {
    return capability<nvinfer1::IPluginV3OneCore>(plugin, PluginCapabilityType::kCORE, "PLUGIN_V3ONE_CORE", 1);
}

nvinfer1::IPluginV3OneBuildV2* build(Plugin* plugin) {
    return capability<nvinfer1::IPluginV3OneBuildV2>(plugin, PluginCapabilityType::kBUILD, "PLUGIN_V3ONE_BUILD", 2);
}

nvinfer1::IPluginV3OneRuntime* runtime(Plugin* plugin) {
    return capability<nvinfer1::IPluginV3OneRuntime>(plugin, PluginCapabilityType::kRUNTIME, "PLUGIN_V3ONE_RUNTIME", 1);
}

const char* kept(std::string text) {
    thread_local std::string last;
    last = std::move(text);
    return last.c_str();
}

}  // namespace dsv4::harness
