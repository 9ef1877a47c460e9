// Where plugins say what is wrong: the logger of whoever called, and a context's error recorder.
#pragma once

#include <NvInferRuntime.h>

namespace dsv4::trt {

void set_logger_finder(nvinfer1::ILoggerFinder* finder) noexcept;

// An error, to the logger that TensorRT finds for this thread; to stderr where TensorRT has not said how to find one.
void log_error(const char* text) noexcept;

// A context's error recorder, or none; it is held as long as this lives.
class Recorder {
public:
    explicit Recorder(nvinfer1::IErrorRecorder* recorder = nullptr) noexcept : recorder_(recorder) {
        if (recorder_) recorder_->incRefCount();
    }
    Recorder(const Recorder& other) noexcept : Recorder(other.recorder_) {}
    Recorder& operator=(const Recorder&) = delete;
    ~Recorder() {
        if (recorder_) recorder_->decRefCount();
    }
    void report(nvinfer1::ErrorCode code, const char* text) const noexcept {
        if (recorder_) recorder_->reportError(code, text);
    }

private:
    nvinfer1::IErrorRecorder* recorder_;
};

}  // namespace dsv4::trt
