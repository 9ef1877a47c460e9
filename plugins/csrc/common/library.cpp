// The registry of ops and the C entry points.
#include <string>

#include "collective/communicator.h"
#include "common/entry_points.h"
#include "common/op.h"
#include "op_table.h"

namespace dsv4 {
namespace {

struct Entry {
    WorkspaceFunction workspace = nullptr;
    LaunchFunction launch = nullptr;
    WorkspaceFunction bound = nullptr;
};

// A function's static: registrations of other files may run before this file's initialisers.
Entry* entries() {
    static Entry table[table::num_ops];
    return table;
}

thread_local std::string last_error;

int index_of(const std::string& name) {
    for (int i = 0; i < table::num_ops; ++i) {
        if (name == table::names[i]) return i;
    }
    return -1;
}

Entry& entry_of(const Dsv4Call* call) {
    DSV4_REQUIRE(call != nullptr, "no call was given");
    DSV4_REQUIRE(call->op >= 0 && call->op < table::num_ops && entries()[call->op].launch,
                 "op %d is not in this library; ask dsv4_find_op", call->op);
    return entries()[call->op];
}

// Keeps what went wrong; without memory for it the message is empty.
void note(const Dsv4Call* call, const char* what) noexcept {
    cudaGetLastError();  // told now: the next launch must not find it
    try {
        const bool known = call && call->op >= 0 && call->op < table::num_ops;
        last_error = (known ? std::string("op '") + table::names[call->op] + "': " : "") + what;
    } catch (...) {
        last_error.clear();
    }
}

// Runs `body` and turns what it throws into a status: no exception may cross the C interface.
template <class Body>
int32_t guarded(const Dsv4Call* call, Body body) noexcept {
    try {
        body();
        return 0;
    } catch (const std::exception& error) {
        note(call, error.what());
    } catch (...) {
        note(call, "an unknown exception");
    }
    return 1;
}

void launch_checked(const Dsv4Call& call, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const Entry& entry = entry_of(&call);
    const size_t needed = entry.workspace(Call{call});
    DSV4_REQUIRE(workspace_bytes >= needed, "the workspace has %zu bytes; expected %zu", workspace_bytes, needed);
    entry.launch(Call{call}, workspace, stream);
}

void put_launch(const Dsv4Launch& launch, const cudaStream_t* streams, const cudaEvent_t* events) {
    const cudaStream_t stream = streams[launch.stream];
    for (int i = 0; i < launch.num_waits; ++i) {
        check_cuda(cudaStreamWaitEvent(stream, events[launch.waits[i]], 0), "waiting for an event");
    }
    launch_checked(launch.call, launch.workspace, launch.workspace_bytes, stream);
    if (launch.record >= 0) check_cuda(cudaEventRecord(events[launch.record], stream), "recording an event");
}

size_t zero_bytes(const Call&) { return 0; }

// The capability to plan for where a caller names none.
int default_capability() {
    if (const int capability = planned_capability()) return capability;
    try {
        return device().capability;
    } catch (const Error& error) {
        fail("%s; without a GPU say for which compute capability to plan: dsv4_plan_for(120) for sm_120a",
             error.what());
    }
}

}  // namespace

Registration::Registration(const char* name, WorkspaceFunction workspace, LaunchFunction launch,
                           WorkspaceFunction bound) {
    const int index = index_of(name);
    if (index >= 0) entries()[index] = {workspace, launch, bound};
}

Registration::Registration(const char* name, NoWorkspace, LaunchFunction launch)
    : Registration(name, zero_bytes, launch, zero_bytes) {}

}  // namespace dsv4

using namespace dsv4;

extern "C" {

int32_t dsv4_find_op(const char* name, int32_t* op) {
    return guarded(nullptr, [&] {
        const int index = index_of(name);
        DSV4_REQUIRE(index >= 0 && entries()[index].launch, "there is no op '%s' in this library", name);
        *op = index;
    });
}

int32_t dsv4_workspace(const Dsv4Call* call, size_t* bytes) {
    return guarded(call, [&] { *bytes = entry_of(call).workspace(Call{*call}); });
}

int32_t dsv4_workspace_on(const Dsv4Call* call, int32_t capability, int32_t multiprocessors, size_t* bytes) {
    return guarded(call, [&] {
        const PlannedDevice planned(device_of(capability, multiprocessors));
        *bytes = entry_of(call).workspace(Call{*call});
    });
}

int32_t dsv4_workspace_bound(const Dsv4Call* largest, int32_t capability, size_t* bytes) {
    return guarded(largest, [&] {
        const int chosen = capability ? capability : default_capability();
        const PlannedDevice planned(device_of(chosen, kMostMultiprocessors));
        *bytes = entry_of(largest).bound(Call{*largest});
    });
}

int32_t dsv4_plan_for(int32_t capability) {
    return guarded(nullptr, [&] { plan_for(capability); });
}

int32_t dsv4_launch(const Dsv4Call* call, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    return guarded(call, [&] {
        DSV4_REQUIRE(call != nullptr, "no call was given");
        launch_checked(*call, workspace, workspace_bytes, stream);
    });
}

int32_t dsv4_workspaces(Dsv4Launch* launches, int32_t count) {
    for (int32_t i = 0; i < count; ++i) {
        const int32_t status = dsv4_workspace(&launches[i].call, &launches[i].workspace_bytes);
        if (status) return status;
    }
    return 0;
}

int32_t dsv4_run(const Dsv4Launch* launches, int32_t count, const cudaStream_t* streams, const cudaEvent_t* events) {
    for (int32_t i = 0; i < count; ++i) {
        const int32_t status = guarded(&launches[i].call, [&] { put_launch(launches[i], streams, events); });
        if (status) return status;
    }
    return 0;
}

int32_t dsv4_scatter(int32_t* target, const int32_t* places, const int32_t* values, int32_t count,
                     cudaStream_t stream) {
    return guarded(nullptr, [&] { scatter(target, places, values, count, stream); });
}

int32_t dsv4_copy_file(const char* path, const Dsv4FilePart* parts, int64_t count, void* staging, size_t staging_bytes,
                       int32_t readers) {
    return guarded(nullptr, [&] { copy_file(path, parts, count, staging, staging_bytes, readers); });
}

int32_t dsv4_set_communicator(const Dsv4Communicator* communicator) {
    return guarded(nullptr, [&] {
        DSV4_REQUIRE(communicator != nullptr, "no communicator was given");
        collective::set_communicator(*communicator);
    });
}

int32_t dsv4_clear_communicator(void) {
    return guarded(nullptr, [] { collective::clear_communicator(); });
}

const char* dsv4_last_error(void) { return last_error.c_str(); }

const char* dsv4_op_table(void) {
    static const std::string json = [] {
        std::string text = "[";
        for (int i = 0; i < table::num_ops; ++i) {
            if (!entries()[i].launch) continue;
            if (text.size() > 1) text += ",";
            text += table::json[i];
        }
        return text + "]";
    }();
    return json.c_str();
}

int32_t dsv4_abi_version(void) { return DSV4_ABI_VERSION; }

const char* dsv4_tensorrt_version(void) {
#ifdef DSV4_HAS_TENSORRT
    return DSV4_TENSORRT_VERSION;
#else
    return "";
#endif
}

}  // extern "C"
