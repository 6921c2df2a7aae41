#include "cuda_runtime.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda_runtime_api.h"
#include "races.h"
#include "streams.h"

struct CUgraph_st {
  std::vector<emulated::Item> nodes;
};
struct CUgraphExec_st {
  std::vector<emulated::Item> nodes;
};

namespace emulated {
namespace {

thread_local int current_device = 0;

struct Event : CUevent_st {
  explicit Event(bool has_time) : timed(has_time) {}
  const bool timed;
  const int device = current_device;
  cudaStream_t recorded_in = nullptr;  // the capturing stream that last recorded it
  std::shared_ptr<Mark> mark;          // null until it is recorded
};

Stream& of(cudaStream_t stream) { return *static_cast<Stream*>(stream); }
Event& of(cudaEvent_t event) { return *static_cast<Event*>(event); }

thread_local std::vector<cudaStream_t> capturing;  // streams that this thread is capturing
thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
std::atomic<int> captures_of_device[2], syncs_of_device[2];

cudaError_t spoil(cudaError_t error) {
  for (const cudaStream_t stream : capturing) of(stream).capture->spoilt = true;
  return error;
}
// True if a call is forbidden now: the thread is capturing, and its capture mode is not relaxed.
bool unsafe() { return !capturing.empty() && mode != cudaStreamCaptureModeRelaxed; }

// Allocations by address.
struct Memory {
  std::mutex mutex;
  std::map<const std::byte*, size_t> blocks;
  size_t used = 0;

  void* allocate(size_t alignment, size_t bytes) {
    void* const data = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (!data) return nullptr;
    std::memset(data, 0xFF, bytes);
    blocks.emplace(static_cast<std::byte*>(data), bytes);
    used += bytes;
    return data;
  }
  bool release(void* data) {
    std::lock_guard lock(mutex);
    const auto block = blocks.find(static_cast<std::byte*>(data));
    if (block == blocks.end()) return false;
    used -= block->second;
    blocks.erase(block);
    std::free(data);
    return true;
  }
  bool holds(const void* begin, size_t bytes) {
    std::lock_guard lock(mutex);
    const auto* data = static_cast<const std::byte*>(begin);
    auto next = blocks.upper_bound(data);
    if (next == blocks.begin()) return false;
    const auto& [start, size] = *std::prev(next);
    return data + bytes <= start + size;
  }
};

Memory& memory() {
  static Memory* all = new Memory;  // never destroyed: it must outlive the threads' pools
  return *all;
}
Memory& page_locked() {
  static Memory* all = new Memory;
  return *all;
}

}  // namespace

namespace {

cudaError_t enqueue(cudaStream_t stream, Item item) {
  if (!of(stream).capture) return push(of(stream), std::move(item));
  of(stream).capture->nodes.push_back(std::move(item));
  return cudaSuccess;
}

}  // namespace

cudaError_t give(cudaStream_t stream, Label label, Work work) {
  if (stream && label.kernel) load(label.kernel, of(stream).device);
  return stream ? enqueue(stream, {.label = label, .run = std::move(work)}) : work();
}

void spend(cudaStream_t stream, double milliseconds) { of(stream).time += milliseconds; }
void count_launch() { ++counts.launches; }
bool in_device_memory(const void* begin, size_t bytes) { return memory().holds(begin, bytes); }
unsigned multiprocessors() { return setting("GODWIT_EMULATED_MULTIPROCESSORS", 1); }
size_t used_bytes() {
  std::lock_guard lock(memory().mutex);
  return memory().used;
}
}  // namespace emulated

using emulated::Item;
using emulated::memory;
using emulated::of;
using emulated::page_locked;
using emulated::spoil;
using emulated::unsafe;

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorDevicesUnavailable: return "CUDA-capable device(s) is/are busy or unavailable";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorPeerAccessAlreadyEnabled: return "peer access is already enabled";
    case cudaErrorCooperativeLaunchTooLarge:
      return "too many blocks in cooperative launch";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureUnmatched:
      return "capture was not initiated in this stream";
    case cudaErrorStreamCaptureIsolation:
      return "dependency created on uncaptured work in another stream";
    case cudaErrorCapturedEvent:
      return "operation not permitted on an event last recorded in a capturing stream";
  }
  return "unknown";
}
const char* cudaGetErrorName(cudaError_t error) { return error == cudaSuccess ? "cudaSuccess" : "cudaError"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) { return *count = 2, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= 2) return cudaErrorInvalidDevice;
  if (emulated::exclusive) return cudaErrorDevicesUnavailable;
  emulated::current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) { return *device = emulated::current_device, cudaSuccess; }
cudaError_t cudaDeviceSynchronize() {
  ++emulated::counts.synchronizations;
  ++emulated::syncs_of_device[emulated::current_device];
  if (emulated::captures_of_device[emulated::current_device] > 0) return cudaErrorStreamCaptureUnsupported;
  return emulated::await_device(emulated::current_device), cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
  std::snprintf(id, static_cast<size_t>(bytes), "0000:%02x:00.0", 0x40 + device);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = emulated::capability / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = emulated::capability % 10; break;
    default:
      *value = static_cast<int>(emulated::multiprocessors());
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return *can = device != peer && emulated::peers, cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }

cudaError_t cudaMalloc(void** data, size_t bytes) {
  ++emulated::counts.allocations;
  if (unsafe()) return spoil(cudaErrorStreamCaptureUnsupported);
  auto& m = memory();
  std::lock_guard lock(m.mutex);
  if (bytes + m.used > emulated::total_bytes) return cudaErrorMemoryAllocation;
  if (!(*data = m.allocate(256, bytes))) return cudaErrorMemoryAllocation;
  return emulated::watch(*data, bytes), cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  ++emulated::counts.allocations;
  if (unsafe()) return spoil(cudaErrorStreamCaptureUnsupported);
  emulated::await_device(emulated::current_device);
  emulated::unwatch(data);
  return memory().release(data) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  auto& m = memory();
  std::lock_guard lock(m.mutex);
  *total = emulated::total_bytes;
  *free_bytes = *total - std::min(*total, m.used);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  ++emulated::counts.allocations;
  if (unsafe()) return spoil(cudaErrorStreamCaptureUnsupported);
  std::lock_guard lock(page_locked().mutex);
  return (*data = page_locked().allocate(4096, bytes)) ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void* data) {
  ++emulated::counts.allocations;
  return !data || page_locked().release(data) ? cudaSuccess : cudaErrorInvalidValue;
}

namespace emulated {
namespace {

cudaError_t copy(void* to, const void* from, size_t bytes) {
  note_read(from, bytes);
  note_write(to, bytes);
  return std::memcpy(to, from, bytes), cudaSuccess;
}

}  // namespace
}  // namespace emulated

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  ++emulated::counts.copies[kind];
  emulated::counts.copied_bytes[kind] += static_cast<int64_t>(bytes);
  const bool from_device = kind != cudaMemcpyHostToDevice, to_device = kind != cudaMemcpyDeviceToHost;
  if (memory().holds(from, bytes) != from_device || memory().holds(to, bytes) != to_device)
    return cudaErrorInvalidValue;
  constexpr const char* kLabels[] = {"a copy to the GPU", "a copy to the host", "a copy on the GPU"};
  Item item{.label = {kLabels[kind]}, .run = [=] { return emulated::copy(to, from, bytes); }};
  void* const host = to_device ? const_cast<void*>(from) : to;
  const bool pageable = !(from_device && to_device) && !page_locked().holds(host, bytes);
  if (!(from_device && to_device) && !pageable)
    item.host = {static_cast<std::byte*>(host), bytes}, item.to_host = !to_device;
  // Pageable memory of the host can be reused when the call returns.
  if (pageable && to_device && !of(stream).capture) {
    const auto* const begin = static_cast<const std::byte*>(from);
    item.run = [to, values = std::vector<std::byte>(begin, begin + bytes)] {
      return emulated::copy(to, values.data(), values.size());
    };
  }
  const cudaError_t status = emulated::enqueue(stream, std::move(item));
  return status == cudaSuccess && pageable && !to_device && !of(stream).capture ? emulated::await(of(stream)) : status;
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  ++emulated::counts.copies[kind];
  emulated::counts.copied_bytes[kind] += static_cast<int64_t>(width * height);
  if (kind != cudaMemcpyDeviceToDevice || height == 0 || width > to_pitch || width > from_pitch ||
      !memory().holds(from, from_pitch * (height - 1) + width) || !memory().holds(to, to_pitch * (height - 1) + width))
    return cudaErrorInvalidValue;
  return emulated::give(stream, {"a copy on the GPU"}, [=] {
    cudaError_t status = cudaSuccess;
    for (size_t i = 0; i < height && status == cudaSuccess; ++i)
      status = emulated::copy(static_cast<std::byte*>(to) + i * to_pitch,
                              static_cast<const std::byte*>(from) + i * from_pitch, width);
    return status;
  });
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  ++emulated::counts.memsets;
  if (bytes == 0 && of(stream).capture) return spoil(cudaErrorInvalidValue);  // a graph cannot contain an empty memset
  if (!memory().holds(data, bytes)) return cudaErrorInvalidValue;
  return emulated::give(stream, {"a memset"}, [=] {
    emulated::note_write(data, bytes);
    return std::memset(data, value, bytes), cudaSuccess;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return *least = 0, *greatest = -5, cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  *stream = new emulated::Stream(emulated::current_device);
  (*stream)->priority = priority;
  return emulated::open(of(*stream)), cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return *priority = stream->priority, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  emulated::close(of(stream));
  return delete &of(stream), cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ++emulated::counts.synchronizations;
  return of(stream).capture ? spoil(cudaErrorStreamCaptureUnsupported) : emulated::await(of(stream));
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (of(stream).capture) return spoil(cudaErrorStreamCaptureUnsupported);
  const cudaError_t status = emulated::query(of(stream));
  emulated::counts.synchronizations += status == cudaSuccess;  // ends a wait of a host that polls
  return status;
}
// On a GPU, waiting for an event of a capture adds the waiting stream to that capture. Here it is an error, because
// Godwit's captures have one stream.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (of(event).recorded_in != (of(stream).capture ? stream : nullptr)) return spoil(cudaErrorStreamCaptureIsolation);
  if (of(stream).capture || !of(event).mark) return cudaSuccess;
  return emulated::push(of(stream), {.wait = of(event).mark});
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return *event = new emulated::Event((flags & cudaEventDisableTiming) == 0), cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete &of(event), cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (of(event).device != of(stream).device) return cudaErrorInvalidDevice;
  of(event).recorded_in = of(stream).capture ? stream : nullptr;
  if (!of(stream).capture) of(event).mark = emulated::record(of(stream));
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ++emulated::counts.synchronizations;
  if (of(event).recorded_in) return spoil(cudaErrorCapturedEvent);
  if (of(event).mark) emulated::await(*of(event).mark);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (of(event).recorded_in) return spoil(cudaErrorCapturedEvent);
  return !of(event).mark || emulated::query(*of(event).mark) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const auto &from = of(begin), &to = of(end);
  if (from.recorded_in || to.recorded_in) return spoil(cudaErrorCapturedEvent);
  if (!from.timed || !to.timed || !from.mark || !to.mark) return cudaErrorInvalidResourceHandle;
  if (!emulated::query(*from.mark) || !emulated::query(*to.mark)) return cudaErrorNotReady;
  const auto spent = static_cast<float>(to.mark->time - from.mark->time);
  const std::chrono::duration<float, std::milli> passed = to.mark->when - from.mark->when;
  return *milliseconds = spent > 0 ? spent : passed.count(), cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (of(stream).capture) return cudaErrorInvalidValue;
  of(stream).capture = std::make_unique<emulated::Capture>();
  emulated::capturing.push_back(stream);
  ++emulated::captures_of_device[of(stream).device];
  of(stream).capture->syncs = emulated::syncs_of_device[of(stream).device];
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const auto place = std::find(emulated::capturing.begin(), emulated::capturing.end(), stream);
  *graph = nullptr;
  if (place == emulated::capturing.end()) return cudaErrorStreamCaptureUnmatched;
  emulated::capturing.erase(place);
  --emulated::captures_of_device[of(stream).device];
  const auto capture = std::move(of(stream).capture);
  // Synchronizing a device invalidates the captures of all threads.
  if (capture->spoilt || capture->syncs != emulated::syncs_of_device[of(stream).device])
    return cudaErrorStreamCaptureInvalidated;
  *graph = new CUgraph_st{std::move(capture->nodes)};
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const auto& capture = of(stream).capture;
  *status = !capture          ? cudaStreamCaptureStatusNone
            : capture->spoilt ? cudaStreamCaptureStatusInvalidated
                              : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return std::swap(*mode, emulated::mode), cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* count) {
  return *count = graph->nodes.size(), cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return *exec = new CUgraphExec_st{graph->nodes}, cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return delete exec, cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  ++emulated::counts.launches;
  for (const Item& node : exec->nodes)
    if (const cudaError_t error = emulated::enqueue(stream, node); error != cudaSuccess) return error;
  return cudaSuccess;
}
