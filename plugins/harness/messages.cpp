#include "messages.h"

namespace dsv4::harness {
namespace {

class Logger final : public nvinfer1::ILogger {
public:
    void log(Severity severity, const char* text) noexcept override {
        static constexpr const char* names[] = {"INTERNAL_ERROR", "ERROR", "WARNING", "INFO", "VERBOSE"};
        messages().add(std::string(names[static_cast<int>(severity)]) + ": " + text);
    }
};

class Finder final : public nvinfer1::ILoggerFinder {
public:
    nvinfer1::ILogger* findLogger() override {
        static Logger logger;
        return &logger;
    }
};

}  // namespace

void Messages::add(std::string line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
}

std::string Messages::take() {
    const std::lock_guard lock(mutex_);
    std::string all;
    for (const std::string& line : lines_) all += line + "\n";
    lines_.clear();
    return all;
}

Messages& messages() {
    static Messages all;
    return all;
}

nvinfer1::ILoggerFinder& logger_finder() {
    static Finder finder;
    return finder;
}

int32_t Recorder::getNbErrors() const noexcept {
    const std::lock_guard lock(mutex_);
    return static_cast<int32_t>(entries_.size());
}

nvinfer1::ErrorCode Recorder::getErrorCode(int32_t index) const noexcept {
    const std::lock_guard lock(mutex_);
    const bool there = index >= 0 && index < static_cast<int32_t>(entries_.size());
    return there ? entries_[index].code : nvinfer1::ErrorCode::kUNSPECIFIED_ERROR;
}

nvinfer1::IErrorRecorder::ErrorDesc Recorder::getErrorDesc(int32_t index) const noexcept {
    const std::lock_guard lock(mutex_);
    const bool there = index >= 0 && index < static_cast<int32_t>(entries_.size());
    return there ? entries_[index].text.c_str() : "";
}

void Recorder::clear() noexcept {
    const std::lock_guard lock(mutex_);
    entries_.clear();
}

bool Recorder::reportError(nvinfer1::ErrorCode code, ErrorDesc text) noexcept {
    const std::lock_guard lock(mutex_);
    entries_.push_back({code, text});
    return true;
}

std::string Recorder::take() {
    const std::lock_guard lock(mutex_);
    std::string all;
    for (const Entry& entry : entries_) all += std::to_string(static_cast<int>(entry.code)) + ": " + entry.text + "\n";
    entries_.clear();
    return all;
}

}  // namespace dsv4::harness
