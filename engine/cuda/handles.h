// Owning wrappers of CUDA streams, events and graphs. Each object is created on the calling thread's current GPU.
#pragma once
#include <utility>

#include "engine/cuda/call.h"

namespace godwit {

class CudaEvent {
 public:
  explicit CudaEvent(bool timed = false) {
    cuda_check(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming),
               "cudaEventCreateWithFlags");
  }
  ~CudaEvent() {
    if (event_) cudaEventDestroy(event_);
  }
  CudaEvent(CudaEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  CudaEvent& operator=(CudaEvent&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  void record(cudaStream_t stream) const { cuda_check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  // Blocks the host until the event has completed. Returns immediately if no event was recorded.
  cudaError_t synchronize() const { return cudaEventSynchronize(event_); }
  // Whether the event has completed. Does not block.
  bool done() const {
    const cudaError_t status = cudaEventQuery(event_);
    if (status != cudaErrorNotReady) cuda_check(status, "cudaEventQuery");
    return status == cudaSuccess;
  }
  // Seconds from `begin` to this event. Both must be timed and have completed.
  double seconds_since(const CudaEvent& begin) const {
    float milliseconds = 0;
    cuda_check(cudaEventElapsedTime(&milliseconds, begin.event_, event_), "cudaEventElapsedTime");
    return milliseconds / 1000;
  }
  // Makes work queued on the stream from now on wait for the event.
  void wait(cudaStream_t stream) const { cuda_check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent"); }

 private:
  cudaEvent_t event_ = nullptr;
};

// An executable graph, instantiated from a stream capture.
class CudaGraph {
 public:
  CudaGraph() = default;  // empty
  explicit CudaGraph(cudaGraph_t captured) {  // takes ownership
    size_t nodes = 0;
    cudaError_t status = cudaGraphGetNodes(captured, nullptr, &nodes);
    if (status == cudaSuccess && nodes > 0) status = cudaGraphInstantiate(&exec_, captured, 0);
    cudaGraphDestroy(captured);
    cuda_check(status, "cudaGraphInstantiate");
  }
  ~CudaGraph() {
    if (exec_) cudaGraphExecDestroy(exec_);
  }
  CudaGraph(CudaGraph&& other) noexcept : exec_(std::exchange(other.exec_, nullptr)) {}
  CudaGraph& operator=(CudaGraph&& other) noexcept {
    std::swap(exec_, other.exec_);
    return *this;
  }
  void launch(cudaStream_t stream) const {
    if (exec_) cuda_check(cudaGraphLaunch(exec_, stream), "cudaGraphLaunch");
  }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

// A stream that does not synchronize with the default stream. It has the highest priority if `high_priority` is set,
// otherwise the lowest.
class CudaStream {
 public:
  explicit CudaStream(bool high_priority = false) {
    int least = 0, greatest = 0;
    cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    cuda_check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, high_priority ? greatest : least),
               "cudaStreamCreateWithPriority");
  }
  ~CudaStream() {
    if (stream_) cudaStreamDestroy(stream_);
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace godwit
