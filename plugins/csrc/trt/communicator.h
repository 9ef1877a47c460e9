// Keeps the process's communicator in its place while an execution context has plugins that need it.
#pragma once

namespace dsv4::trt {

// As long as one lives the communicator can not be cleared. Where TensorRT is loaded all of them share one resource of
// its plugin registry, "dsv4.communicator", which has the communicator held once. Raises if there is no communicator.
class CommunicatorHold {
public:
    CommunicatorHold();
    ~CommunicatorHold();
    CommunicatorHold(const CommunicatorHold&) = delete;
    CommunicatorHold& operator=(const CommunicatorHold&) = delete;

private:
    void* registry_;  // TensorRT's, or null
};

}  // namespace dsv4::trt
