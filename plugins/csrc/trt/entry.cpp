// The two symbols by which TensorRT takes a library of plugins; the library needs none of TensorRT's.
#include "trt/creator.h"

extern "C" {

DSV4_EXPORT void setLoggerFinder(nvinfer1::ILoggerFinder* finder) { dsv4::trt::set_logger_finder(finder); }

DSV4_EXPORT nvinfer1::IPluginCreatorInterface* const* getCreators(int32_t& count) {
    try {
        const auto& all = dsv4::trt::creators();
        count = static_cast<int32_t>(all.size());
        return all.data();
    } catch (const std::exception& error) {
        dsv4::trt::log_error(error.what());
    } catch (...) {
        dsv4::trt::log_error("an unknown exception");
    }
    count = 0;
    return nullptr;
}

}  // extern "C"
