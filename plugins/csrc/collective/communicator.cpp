// Keeps the communicator and counts who uses it.
#include "collective/communicator.h"

#include <mutex>
#include <optional>

#include "common/op.h"

namespace dsv4::collective {
namespace {

constexpr char kNone[] = "this process has no communicator; set one (dsv4_set_communicator) first";

struct State {
    std::mutex mutex;
    std::optional<Dsv4Communicator> communicator;
    int users = 0;
};

State& state() {
    static State only;
    return only;
}

void check(const Dsv4Communicator& c) {
    DSV4_REQUIRE(c.comm && c.all_reduce && c.all_gather && c.error_string,
                 "a communicator needs a handle and three functions; one of them is null");
    DSV4_REQUIRE(c.world_size >= 1 && c.rank >= 0 && c.rank < c.world_size,
                 "rank %d of %d ranks; expected 0 or more, and less than the number of ranks", c.rank, c.world_size);
    DSV4_REQUIRE(c.device >= 0, "device %d; expected 0 or more", c.device);
}

}  // namespace

void set_communicator(const Dsv4Communicator& communicator) {
    check(communicator);
    const std::lock_guard lock(state().mutex);
    const auto& present = state().communicator;
    DSV4_REQUIRE(!present, "this process has a communicator, of rank %d of %d ranks; clear it before another is set",
                 present->rank, present->world_size);
    state().communicator = communicator;
}

void clear_communicator() {
    const std::lock_guard lock(state().mutex);
    DSV4_REQUIRE(state().communicator, kNone);
    DSV4_REQUIRE(state().users == 0, "the communicator has %d user(s); it can be cleared when they are gone",
                 state().users);
    state().communicator.reset();
}

void retain() {
    const std::lock_guard lock(state().mutex);
    DSV4_REQUIRE(state().communicator, kNone);
    ++state().users;
}

void release() noexcept {
    const std::lock_guard lock(state().mutex);
    if (state().users > 0) --state().users;
}

Dsv4Communicator communicator() {
    const auto found = [] {
        const std::lock_guard lock(state().mutex);
        return state().communicator;
    }();
    DSV4_REQUIRE(found, kNone);
    const int device = current_device();
    DSV4_REQUIRE(device == found->device, "the current device is %d; expected %d, the communicator's", device,
                 found->device);
    return *found;
}

}  // namespace dsv4::collective
