// The one communicator of the process, which collectives run on. What raises does so with a reason to show.
#pragma once

#include "common/abi.h"

namespace dsv4::collective {

// The bodies of dsv4_set_communicator and dsv4_clear_communicator, which abi.h describes.
void set_communicator(const Dsv4Communicator& communicator);
void clear_communicator();

// For whoever keeps launches for later: between the two the communicator can not be cleared. `retain` raises if there
// is none.
void retain();
void release() noexcept;

// The communicator, for a launch; raises if there is none, or if the current device is not the one that it is of.
Dsv4Communicator communicator();

}  // namespace dsv4::collective
