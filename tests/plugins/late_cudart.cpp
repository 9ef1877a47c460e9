// The CUDA runtime as far as copies of files need it, in the host's memory: a stream is a thread that takes its time.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "common/entry_points.h"

namespace {

std::atomic<int> calls = 0, failing = -1;  // which call fails
std::atomic<int> left = 0;                 // streams and events that live

cudaError_t answer() { return calls++ == failing ? cudaErrorUnknown : cudaSuccess; }

class Stream {
   public:
    ~Stream() { put({}); }
    void put(std::function<void()> work) {
        const std::lock_guard lock(mutex_);
        queue_.push_back(std::move(work));
        changed_.notify_all();
    }
    void wait() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return queue_.empty(); });
    }

   private:
    void run() {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [&] { return !queue_.empty(); });
            const auto work = queue_.front();
            if (!work) return;
            lock.unlock();
            std::this_thread::sleep_for(std::chrono::microseconds(50));
            work();
            lock.lock();
            queue_.pop_front();
            changed_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> queue_;  // what is at work stays in front; nothing is the end
    std::jthread thread_{[this] { run(); }};
};

struct Event {
    std::atomic<int> recorded = 0, passed = 0;
};

Stream* of(cudaStream_t stream) { return reinterpret_cast<Stream*>(stream); }
Event* of(cudaEvent_t event) { return reinterpret_cast<Event*>(event); }

}  // namespace

namespace dsv4 {
void scatter(int32_t*, const int32_t*, const int32_t*, int, cudaStream_t) {}
}  // namespace dsv4

extern "C" {

DSV4_EXPORT void let_fail(int call) { calls = 0, failing = call; }
DSV4_EXPORT int num_calls() { return calls; }
DSV4_EXPORT int num_left() { return left; }

cudaError_t cudaGetDevice(int* device) { return *device = 0, answer(); }
cudaError_t cudaSetDevice(int) { return answer(); }
cudaError_t cudaDeviceGetAttribute(int*, cudaDeviceAttr, int) { return answer(); }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "it failed"; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return answer(); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    if (answer()) return cudaErrorUnknown;
    *stream = reinterpret_cast<cudaStream_t>(new Stream);
    return ++left, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return delete of(stream), --left, cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return of(stream)->wait(), answer(); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    if (answer()) return cudaErrorUnknown;
    *event = reinterpret_cast<cudaEvent_t>(new Event);
    return ++left, cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete of(event), --left, cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    Event& event = *of(handle);
    for (int passed; (passed = event.passed) < event.recorded;) event.passed.wait(passed);
    return answer();
}
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
    if (answer()) return cudaErrorUnknown;
    Event& event = *of(handle);
    of(stream)->put([&event, number = ++event.recorded] {
        event.passed = number;
        event.passed.notify_all();
    });
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
    if (answer()) return cudaErrorUnknown;
    of(stream)->put([=] { std::memcpy(to, from, bytes); });
    return cudaSuccess;
}

}  // extern "C"
