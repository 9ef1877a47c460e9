// Parts of a file to the device: readers take pieces out of the page cache into pinned memory that stays in the
// processor's caches, and send them on.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "common/entry_points.h"
#include "common/op.h"

namespace dsv4 {
namespace {

constexpr int kBuffers = 2;             // of a reader: one is filled while the other one is sent
constexpr size_t kMemoryPage = 4096;    // bytes; buffers begin at one if the staging memory does
constexpr char kCopying[] = "copying a file to the GPU";

class File {
   public:
    explicit File(const char* path) : path_(path), number_(open(path, O_RDONLY | O_CLOEXEC)) {
        DSV4_REQUIRE(number_ >= 0, "%s can not be opened: %s", path, strerror(errno));
    }
    ~File() { close(number_); }
    File(const File&) = delete;

    void read(char* to, size_t bytes, int64_t start) const {
        for (size_t done = 0; done < bytes;) {
            const ssize_t count = pread(number_, to + done, bytes - done, start + static_cast<int64_t>(done));
            if (count < 0 && errno == EINTR) continue;
            DSV4_REQUIRE(count >= 0, "%s can not be read: %s", path_, strerror(errno));
            DSV4_REQUIRE(count > 0, "%s ends at byte %lld, inside its tensors", path_,
                         static_cast<long long>(start) + static_cast<long long>(done));
            done += static_cast<size_t>(count);
        }
    }

   private:
    const char* path_;
    int number_;
};

// A reader's stream, and an event for each of its buffers.
class Sender {
   public:
    Sender(char* staging, size_t piece_bytes) : Sender() {  // made: an error below leaves it to the destructor
        staging_ = staging, piece_bytes_ = piece_bytes;
        check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), kCopying);
        for (cudaEvent_t& event : sent_) check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), kCopying);
    }
    ~Sender() {
        if (stream_) cudaStreamSynchronize(stream_);  // also after an error: the buffers go to others
        for (cudaEvent_t event : sent_) {
            if (event) cudaEventDestroy(event);
        }
        if (stream_) cudaStreamDestroy(stream_);
    }
    Sender(const Sender&) = delete;

    void send(const File& file, const Dsv4FilePart& piece) {
        const int turn = turn_++ % kBuffers;
        char* buffer = staging_ + turn * piece_bytes_;
        check_cuda(cudaEventSynchronize(sent_[turn]), kCopying);
        file.read(buffer, piece.bytes, piece.start);
        check_cuda(cudaMemcpyAsync(piece.target, buffer, piece.bytes, cudaMemcpyHostToDevice, stream_), kCopying);
        check_cuda(cudaEventRecord(sent_[turn], stream_), kCopying);
    }
    void finish() { check_cuda(cudaStreamSynchronize(stream_), kCopying); }

   private:
    Sender() = default;

    char* staging_ = nullptr;
    size_t piece_bytes_ = 0;
    cudaStream_t stream_ = nullptr;
    cudaEvent_t sent_[kBuffers] = {};
    int turn_ = 0;
};

std::vector<Dsv4FilePart> cut(const Dsv4FilePart* parts, int64_t count, size_t piece_bytes) {
    std::vector<Dsv4FilePart> pieces;
    for (int64_t i = 0; i < count; ++i) {
        for (size_t at = 0; at < parts[i].bytes; at += piece_bytes) {
            pieces.push_back({parts[i].start + static_cast<int64_t>(at), std::min(piece_bytes, parts[i].bytes - at),
                              static_cast<char*>(parts[i].target) + at});
        }
    }
    return pieces;
}

// The first error of several threads; the others stop at their next piece.
class FirstError {
   public:
    bool is_set() const { return is_set_; }
    void set(std::exception_ptr error) {
        const std::lock_guard lock(mutex_);
        if (!is_set_.exchange(true)) error_ = std::move(error);
    }
    void rethrow() const {
        if (error_) std::rethrow_exception(error_);
    }

   private:
    std::mutex mutex_;
    std::atomic<bool> is_set_ = false;
    std::exception_ptr error_;
};

}  // namespace

void copy_file(const char* path, const Dsv4FilePart* parts, int64_t count, void* staging, size_t staging_bytes,
               int readers) {
    DSV4_REQUIRE(readers > 0, "%d readers; expected at least one", readers);
    const size_t piece_bytes = staging_bytes / (static_cast<size_t>(readers) * kBuffers) / kMemoryPage * kMemoryPage;
    DSV4_REQUIRE(piece_bytes > 0, "%zu bytes of staging memory are too few for %d readers", staging_bytes, readers);
    const File file(path);
    const int device = current_device();
    const std::vector<Dsv4FilePart> pieces = cut(parts, count, piece_bytes);
    std::atomic<size_t> next = 0;
    FirstError error;
    const auto read = [&](int reader) {
        try {
            check_cuda(cudaSetDevice(device), kCopying);
            Sender sender(static_cast<char*>(staging) + reader * kBuffers * piece_bytes, piece_bytes);
            for (size_t i = next++; i < pieces.size() && !error.is_set(); i = next++) sender.send(file, pieces[i]);
            sender.finish();
        } catch (...) {
            error.set(std::current_exception());
        }
    };
    {
        std::vector<std::jthread> threads;
        for (int reader = 0; reader < readers; ++reader) threads.emplace_back(read, reader);
    }
    error.rethrow();
}

}  // namespace dsv4
