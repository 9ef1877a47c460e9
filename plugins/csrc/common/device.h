// What the division of work, and so the size of workspaces, depends on besides shapes: the device.
#pragma once

namespace dsv4 {

struct Device {
    int capability;           // major * 10 + minor
    int multiprocessors;
    int shared_memory_optin;  // bytes that a block can have at most
};

// No part of the architectures that there are kernels for has more (GB202: 192). Workspaces are planned for it.
constexpr int kMostMultiprocessors = 192;

// The CUDA device of this thread; each is asked once. Or what a PlannedDevice of this thread says.
const Device& device();
int current_device();

// A device that need not be here, by its compute capability; raises if there are no kernels for it.
Device device_of(int capability, int multiprocessors);

// While it lives, device() of its thread is another: to size workspaces ahead, never around a launch.
class PlannedDevice {
public:
    explicit PlannedDevice(const Device& device);
    ~PlannedDevice();
    PlannedDevice(const PlannedDevice&) = delete;
    PlannedDevice& operator=(const PlannedDevice&) = delete;

private:
    Device device_;
    const Device* before_;
};

// What dsv4_plan_for said, 0 for nothing.
void plan_for(int capability);
int planned_capability();

}  // namespace dsv4
