// Loading a plugin library, and making plugins.
#include <dlfcn.h>

#include <cstring>
#include <memory>

#include "stages.h"

namespace dsv4::harness {

struct Library {
    std::vector<Creator*> creators;
};

namespace {

template <class Function>
Function symbol(void* handle, const char* name) {
    void* found = dlsym(handle, name);
    if (!found) messages().add(std::string("HARNESS: the library has no symbol ") + name);
    return reinterpret_cast<Function>(found);
}

// TensorRT takes creators of this interface alone for plugins of version 3.
bool is_creator(nvinfer1::IPluginCreatorInterface* made) {
    const nvinfer1::InterfaceInfo info = made->getInterfaceInfo();
    const bool is = std::strcmp(info.kind, "PLUGIN CREATOR_V3ONE") == 0 && info.major == 1;
    if (!is) messages().add(std::string("HARNESS: a creator is ") + info.kind);
    return is;
}

}  // namespace
}  // namespace dsv4::harness

using namespace dsv4::harness;

const char* dsv4_harness_messages() { return kept(messages().take()); }

Library* dsv4_harness_open(const char* path) {
    void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        messages().add(std::string("HARNESS: ") + dlerror());
        return nullptr;
    }
    const auto set_finder = symbol<void (*)(nvinfer1::ILoggerFinder*)>(handle, "setLoggerFinder");
    const auto get_creators =
        symbol<nvinfer1::IPluginCreatorInterface* const* (*)(int32_t&)>(handle, "getCreators");
    if (!set_finder || !get_creators) return nullptr;
    set_finder(&logger_finder());
    int32_t count = 0;
    nvinfer1::IPluginCreatorInterface* const* found = get_creators(count);
    auto library = std::make_unique<Library>();
    for (int32_t i = 0; i < count; ++i) {
        if (is_creator(found[i])) library->creators.push_back(static_cast<Creator*>(found[i]));
    }
    return library.release();
}

int32_t dsv4_harness_num_creators(const Library* library) {
    return static_cast<int32_t>(library->creators.size());
}

Creator* dsv4_harness_creator(const Library* library, int32_t index) { return library->creators.at(index); }

const char* dsv4_harness_creator_text(Creator* creator, int32_t which) {
    return which == 0   ? creator->getPluginName()
           : which == 1 ? creator->getPluginVersion()
                        : creator->getPluginNamespace();
}

const Fields* dsv4_harness_creator_fields(Creator* creator) { return creator->getFieldNames(); }

Plugin* dsv4_harness_create(Creator* creator, const char* name, const Fields* fields, int32_t phase) {
    return creator->createPlugin(name, fields, static_cast<nvinfer1::TensorRTPhase>(phase));
}

Plugin* dsv4_harness_clone(Plugin* plugin) { return plugin->clone(); }

void dsv4_harness_destroy(Plugin* plugin) { delete plugin; }

int32_t dsv4_harness_capabilities(Plugin* plugin) {
    int32_t found = 0;
    for (int type = 0; type < 3; ++type) {
        const auto asked = static_cast<nvinfer1::PluginCapabilityType>(type);
        found |= (plugin->getCapabilityInterface(asked) != nullptr) << type;
    }
    return found;
}

const char* dsv4_harness_text(Plugin* plugin, int32_t which) {
    nvinfer1::IPluginV3OneCore* found = core(plugin);
    if (!found) return nullptr;
    return which == 0   ? found->getPluginName()
           : which == 1 ? found->getPluginVersion()
                        : found->getPluginNamespace();
}
