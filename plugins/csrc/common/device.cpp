// Asks the CUDA runtime about devices, and keeps what it said.
#include "common/device.h"

#include <atomic>
#include <mutex>

#include "common/op.h"

namespace dsv4 {
namespace {

constexpr int kMostDevices = 64;

thread_local const Device* planned = nullptr;
std::atomic<int> capability_to_plan_for = 0;

int attribute(cudaDeviceAttr which, int ordinal) {
    int value = 0;
    check_cuda(cudaDeviceGetAttribute(&value, which, ordinal), "the current CUDA device");
    return value;
}

Device ask(int ordinal) {
    return {attribute(cudaDevAttrComputeCapabilityMajor, ordinal) * 10 +
                attribute(cudaDevAttrComputeCapabilityMinor, ordinal),
            attribute(cudaDevAttrMultiProcessorCount, ordinal),
            attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal)};
}

const Device& known(int ordinal) {
    static Device devices[kMostDevices];
    static std::atomic<bool> asked[kMostDevices];
    static std::mutex mutex;
    DSV4_REQUIRE(ordinal < kMostDevices, "CUDA device %d; expected at most %d", ordinal, kMostDevices - 1);
    if (!asked[ordinal].load(std::memory_order_acquire)) {
        const std::lock_guard lock(mutex);
        if (!asked[ordinal].load(std::memory_order_relaxed)) {
            devices[ordinal] = ask(ordinal);
            asked[ordinal].store(true, std::memory_order_release);
        }
    }
    return devices[ordinal];
}

}  // namespace

int current_device() {
    int ordinal = 0;
    check_cuda(cudaGetDevice(&ordinal), "the current CUDA device");
    return ordinal;
}

const Device& device() { return planned ? *planned : known(current_device()); }

Device device_of(int capability, int multiprocessors) {
    DSV4_REQUIRE(multiprocessors >= 1 && multiprocessors <= kMostMultiprocessors,
                 "a device of %d multiprocessors; expected 1 to %d", multiprocessors, kMostMultiprocessors);
    switch (capability) {
        case 90:
        case 100:
        case 103: return {capability, multiprocessors, 227 << 10};
        case 120:
        case 121: return {capability, multiprocessors, 99 << 10};
        default: fail("compute capability %d; expected 90, 100, 103, 120 or 121", capability);
    }
}

PlannedDevice::PlannedDevice(const Device& device) : device_(device), before_(planned) { planned = &device_; }

PlannedDevice::~PlannedDevice() { planned = before_; }

void plan_for(int capability) {
    if (capability != 0) device_of(capability, kMostMultiprocessors);  // raises
    capability_to_plan_for = capability;
}

int planned_capability() { return capability_to_plan_for; }

}  // namespace dsv4
