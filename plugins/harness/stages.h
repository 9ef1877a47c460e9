// A plugin's capabilities, asked for as TensorRT asks.
#pragma once

#include "messages.h"

namespace dsv4::harness {

// Null, with a message, where a plugin has no such capability or another version of it than TensorRT would take.
nvinfer1::IPluginV3OneCore* core(Plugin* plugin);
nvinfer1::IPluginV3OneBuildV2* build(Plugin* plugin);
nvinfer1::IPluginV3OneRuntime* runtime(Plugin* plugin);

// Text that lives until the thread's next call that gives text.
const char* kept(std::string text);

}  // namespace dsv4::harness
