// Keeps what plugins log and report.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "harness.h"

namespace dsv4::harness {

// Messages of any thread, until somebody takes them.
class Messages {
public:
    void add(std::string line);
    std::string take();  // a line each

private:
    std::mutex mutex_;
    std::vector<std::string> lines_;
};

Messages& messages();

// The finder that plugin libraries get; its logger adds to messages().
nvinfer1::ILoggerFinder& logger_finder();

class Recorder final : public nvinfer1::IErrorRecorder {
public:
    int32_t getNbErrors() const noexcept override;
    nvinfer1::ErrorCode getErrorCode(int32_t index) const noexcept override;
    ErrorDesc getErrorDesc(int32_t index) const noexcept override;
    bool hasOverflowed() const noexcept override { return false; }
    void clear() noexcept override;
    bool reportError(nvinfer1::ErrorCode code, ErrorDesc text) noexcept override;
    RefCount incRefCount() noexcept override { return ++references_; }
    RefCount decRefCount() noexcept override { return --references_; }

    RefCount references() const { return references_; }
    std::string take();  // "code: text", a line each

private:
    struct Entry {
        nvinfer1::ErrorCode code;
        std::string text;
    };
    mutable std::mutex mutex_;
    std::vector<Entry> entries_;
    std::atomic<RefCount> references_ = 0;
};

}  // namespace dsv4::harness
