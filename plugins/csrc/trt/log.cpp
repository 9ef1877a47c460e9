#include "trt/log.h"

#include <atomic>
#include <cstdio>

namespace dsv4::trt {
namespace {

std::atomic<nvinfer1::ILoggerFinder*> logger_finder = nullptr;

nvinfer1::ILogger* find_logger() noexcept {
    nvinfer1::ILoggerFinder* finder = logger_finder;
    try {
        return finder ? finder->findLogger() : nullptr;
    } catch (...) {  // findLogger is not noexcept
        return nullptr;
    }
}

}  // namespace

void set_logger_finder(nvinfer1::ILoggerFinder* finder) noexcept { logger_finder = finder; }

void log_error(const char* text) noexcept {
    if (nvinfer1::ILogger* logger = find_logger()) {
        logger->log(nvinfer1::ILogger::Severity::kERROR, text);
    } else {
        std::fprintf(stderr, "%s\n", text);
    }
}

}  // namespace dsv4::trt
