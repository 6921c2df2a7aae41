// The part of the CUDA runtime that Godwit uses, emulated on the CPU. Device memory is host memory, and host threads
// execute the work of streams (streams.h). The threads of a kernel are fibers, so barriers and warp exchanges behave as
// on a GPU.
#pragma once
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local
#define __launch_bounds__(...)
#define __grid_constant__

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorDevicesUnavailable = 46,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorPeerAccessAlreadyEnabled = 704,
  cudaErrorCooperativeLaunchTooLarge = 720,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureUnmatched = 903,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorCapturedEvent = 907
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76
};
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone,
  cudaStreamCaptureStatusActive,
  cudaStreamCaptureStatusInvalidated
};
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed
};
constexpr unsigned cudaHostAllocDefault = 0, cudaHostAllocPortable = 1;
constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2;

struct CUstream_st {
  int priority = 0;
};
struct CUevent_st {};
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
using cudaGraph_t = struct CUgraph_st*;
using cudaGraphExec_t = struct CUgraphExec_st*;
using cudaGraphNode_t = struct CUgraphNode_st*;

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
extern constinit thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;
constexpr int warpSize = 32;

enum cudaLaunchAttributeID { cudaLaunchAttributeCooperative = 2 };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int cooperative;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
cudaError_t cudaMalloc(void** data, size_t bytes);  // fills the memory with NaN
cudaError_t cudaFree(void* data);
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total);
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* data);
// A copy fails if an address is not in the memory (host or device) that `kind` specifies.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream);  // only on the GPU
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);  // 0 and -5, as on a GPU
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
// Runs no work, and is not counted as a wait of the host.
cudaError_t cudaEventQuery(cudaEvent_t event);
// The emulated time that the stream has spent (emulated::spend()) from `begin` to `end`. If there is none, wall-clock
// time.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);
// Work queued on a capturing stream is stored, and runs at each launch of the graph. A call that is not allowed during
// capture returns an error and invalidates the capture.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode);
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);

namespace emulated {

// The name of an item of work: a text or a kernel.
struct Label {
  const char* text = nullptr;
  const void* kernel = nullptr;
};
// Queues work on a stream, or stores it if the stream is capturing. Returns the error of work that ran immediately.
cudaError_t give(cudaStream_t stream, Label label, std::function<cudaError_t()> work);
// Called by work of a stream: adds to the time that events measure. Other work takes no emulated time.
void spend(cudaStream_t stream, double milliseconds);
// The error of a launch; cudaSuccess if the grid can run.
cudaError_t launch_error(dim3 grid, dim3 block, bool cooperative);
// Runs every thread of every block. Blocks run one after another. If the kernel is cooperative, each block runs until
// the next barrier of the grid. A deadlock at a barrier terminates the process.
cudaError_t run_grid(dim3 grid, dim3 block, const std::function<void()>& thread, bool cooperative = false);
bool in_device_memory(const void* begin, size_t bytes);
inline std::atomic<size_t> total_bytes{size_t{1} << 30};  // device memory limit; tests may lower it
size_t used_bytes();
unsigned multiprocessors();                 // GODWIT_EMULATED_MULTIPROCESSORS
inline std::atomic<int> capability{90};     // compute capability of the GPUs; tests may change it
inline std::atomic<bool> peers{true};       // whether GPUs can access each other's memory
inline std::atomic<bool> exclusive{false};  // another process uses the GPUs exclusively
// Number of calls of all threads since the start of the process. Tests subtract two readings.
struct Counts {
  std::atomic<int64_t> launches{0};                     // kernels, calls of cuBLASLt and cuDNN, CUDA graphs
  std::atomic<int64_t> copies[3]{}, copied_bytes[3]{};  // indices: cudaMemcpyKind
  std::atomic<int64_t> memsets{0};
  // Waits of the host for streams, events and devices, and calls of cudaStreamQuery() that find an idle stream.
  std::atomic<int64_t> synchronizations{0};
  std::atomic<int64_t> allocations{0};       // calls that allocate or free memory; they may synchronize the device
};
inline Counts counts;
void count_launch();  // for headers of kernels, in which the race detector would see an atomic access
void block_barrier();
void grid_barrier();
void warp_barrier();   // orders no memory accesses, like an exchange of values
void warp_memory_barrier();
[[noreturn]] void stop(const char* why);
// Reports an atomic access to the race detector (races.h). `place`: the calling instruction.
void note_atomic(const void* at, size_t bytes, const void* place);
// Asynchronously copies 16 bytes to shared memory, or zeros if `from` is null. Between the two calls, `to` is NaN.
void start_copy(void* to, const void* from);
void await_copies();  // waits for copies of the running thread
constexpr size_t kLaneBytes = 32;
inline unsigned lane() { return threadIdx.x % 32; }
unsigned next_turn();  // exchange slot of the running thread's next exchange: 0, 1, 0, …
std::byte* lane_slot(unsigned turn, unsigned lane);  // slot of a lane of the running warp

// Warp exchange: calls read(of_lane), where of_lane(i) returns the `mine` of lane i. Turns alternate between two slots,
// because lanes may still be reading the slot of the previous exchange.
template <class T, class F>
void share(const T& mine, const F& read) {
  static_assert(sizeof(T) <= kLaneBytes && std::is_trivially_copyable_v<T>);
  const unsigned turn = next_turn();
  std::memcpy(lane_slot(turn, lane()), &mine, sizeof(T));
  warp_barrier();
  read([turn](unsigned from) {
    T value;
    std::memcpy(&value, lane_slot(turn, from), sizeof(T));
    return value;
  });
}

template <class T>
T exchange(const T& mine, unsigned from) {
  T result;
  share(mine, [&](const auto& of_lane) { result = of_lane(from); });
  return result;
}

}  // namespace emulated

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... arguments) {
  emulated::count_launch();
  const dim3 grid = config->gridDim, block = config->blockDim;
  bool cooperative = false;
  for (unsigned i = 0; i < config->numAttrs; ++i)
    if (config->attrs[i].id == cudaLaunchAttributeCooperative) cooperative = config->attrs[i].val.cooperative != 0;
  if (const cudaError_t error = emulated::launch_error(grid, block, cooperative); error != cudaSuccess) return error;
  return emulated::give(config->stream, {.kernel = reinterpret_cast<const void*>(kernel)}, [=] {
    return emulated::run_grid(
        grid, block, [&] { kernel(static_cast<P>(arguments)...); }, cooperative);
  });
}

inline void __syncthreads() { emulated::block_barrier(); }
inline void __syncwarp(unsigned = ~0u) { emulated::warp_memory_barrier(); }
template <class T>
T __shfl_sync(unsigned, T value, int from, int width = 32) {
  const unsigned first = emulated::lane() / static_cast<unsigned>(width) * static_cast<unsigned>(width);
  return emulated::exchange(value, first + static_cast<unsigned>(from) % static_cast<unsigned>(width));
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return emulated::exchange(value, (emulated::lane() ^ static_cast<unsigned>(mask)) % 32);
}
template <class T>
T __shfl_down_sync(unsigned, T value, unsigned by) {
  const unsigned from = emulated::lane() + by;
  return emulated::exchange(value, from < 32 ? from : emulated::lane());
}
inline unsigned __ballot_sync(unsigned, int predicate) {
  unsigned bits = 0;
  emulated::share(predicate != 0, [&](const auto& of_lane) {
    for (unsigned from = 0; from < 32; ++from) bits |= unsigned{of_lane(from)} << from;
  });
  return bits;
}
inline int __popc(unsigned x) { return std::popcount(x); }
template <class T>
T __ldg(const T* from) {
  return *from;
}
// The race detector must not see the plain accesses inside atomic operations.
#define GODWIT_ATOMIC template <class T> __attribute__((noinline, no_sanitize("thread")))
GODWIT_ATOMIC T atomicAdd(T* to, std::type_identity_t<T> value) {
  emulated::note_atomic(to, sizeof(T), __builtin_return_address(0));
  const T before = *to;
  *to = before + value;
  return before;
}
GODWIT_ATOMIC T atomicMax(T* to, std::type_identity_t<T> value) {
  emulated::note_atomic(to, sizeof(T), __builtin_return_address(0));
  const T before = *to;
  *to = before > value ? before : value;
  return before;
}
GODWIT_ATOMIC T atomicOr(T* to, std::type_identity_t<T> value) {
  emulated::note_atomic(to, sizeof(T), __builtin_return_address(0));
  const T before = *to;
  *to = before | value;
  return before;
}
#undef GODWIT_ATOMIC
