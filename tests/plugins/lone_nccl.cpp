// NCCL without GPUs and other processes, as far as making and ending communicators needs it.
#include <cstddef>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

struct Id {
    char internal[128];
};

struct Comm {
    int rank, ranks;
    char id[128];
};

int failing = 0;    // what every call but ncclGetErrorString gives
int made = 0, destroyed = 0, aborted = 0;

}  // namespace

EXPORT void let_fail(int result) { failing = result; }
EXPORT int num_made() { return made; }
EXPORT int num_destroyed() { return destroyed; }
EXPORT int num_aborted() { return aborted; }

// What the communicator was made of, for tests.
EXPORT int rank_of(const Comm* comm) { return comm->rank; }
EXPORT int ranks_of(const Comm* comm) { return comm->ranks; }
EXPORT int id_byte_of(const Comm* comm, int index) { return comm->id[index]; }

EXPORT const char* ncclGetErrorString(int) { return "told to fail"; }

EXPORT int ncclGetUniqueId(Id* id) {
    for (int i = 0; i < 128; ++i) id->internal[i] = static_cast<char>(i - 1);  // 0 is among them
    return failing;
}

EXPORT int ncclCommInitRank(Comm** comm, int ranks, Id id, int rank) {
    if (failing) return failing;
    *comm = new Comm{rank, ranks, {}};
    for (int i = 0; i < 128; ++i) (*comm)->id[i] = id.internal[i];
    ++made;
    return 0;
}

EXPORT int ncclCommDestroy(Comm* comm) { return delete comm, ++destroyed, failing; }
EXPORT int ncclCommAbort(Comm* comm) { return delete comm, ++aborted, failing; }

EXPORT int ncclAllReduce(const void*, void*, size_t, int, int, Comm*, void*) { return 5; }
EXPORT int ncclAllGather(const void*, void*, size_t, int, Comm*, void*) { return 6; }
