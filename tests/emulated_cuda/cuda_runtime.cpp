#include "cuda_runtime.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "cuda_runtime_api.h"

using Work = std::function<cudaError_t()>;
struct CUgraph_st {
  std::vector<Work> nodes;
};
struct CUgraphExec_st {
  std::vector<Work> nodes;
};

constinit thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {

void stop(const char* why) {
  std::fprintf(stderr, "emulated kernel, block %u of %u: %s\n", blockIdx.x, gridDim.x, why);
  std::abort();
}

namespace {

constexpr size_t kStack = 128 << 10;
constexpr unsigned kMostThreads = 1024;

enum class State { ready, at_block_barrier, at_warp_barrier, done };

struct Fiber {
  jmp_buf place;
  State state;
  unsigned turn;
  bool started = false;
};

// The block that is running on this thread. Fibers are reused by later blocks, and switch with _setjmp and _longjmp,
// which unlike swapcontext make no system call.
struct Block {
  std::vector<Fiber> fibers = std::vector<Fiber>(kMostThreads);
  std::unique_ptr<std::byte[]> stacks = std::make_unique_for_overwrite<std::byte[]>(kMostThreads * kStack);
  std::byte slots[2][kMostThreads][kLaneBytes];
  jmp_buf scheduler;
  unsigned threads = 0, running = 0;
  const std::function<void()>* thread = nullptr;
};

Block& block() {
  thread_local Block here;
  return here;
}

// Returns to the scheduler until it resumes the running fiber.
void pause(Block& b) {
  if (_setjmp(b.fibers[b.running].place) == 0) _longjmp(b.scheduler, 1);
}

// A fiber's function: runs one thread of every block.
void run_fiber() {
  Block& b = block();
  for (;;) {
    (*b.thread)();
    b.fibers[b.running].state = State::done;
    pause(b);
  }
}

// Runs the fiber `b.running` until it pauses.
void resume(Block& b) {
  if (_setjmp(b.scheduler) != 0) return;
  Fiber& fiber = b.fibers[b.running];
  if (fiber.started) _longjmp(fiber.place, 1);
  fiber.started = true;
  ucontext_t start;
  getcontext(&start);
  start.uc_stack.ss_sp = b.stacks.get() + b.running * kStack;
  start.uc_stack.ss_size = kStack;
  makecontext(&start, run_fiber, 0);
  setcontext(&start);
}

void wait_at(State barrier) {
  Block& b = block();
  b.fibers[b.running].state = barrier;
  pause(b);
}

// Releases all threads whose barrier is complete. Returns false on a deadlock: threads remain, but none can proceed.
bool release(Block& b) {
  const unsigned threads = b.threads;
  const std::span<Fiber> fibers(b.fibers.data(), threads);
  unsigned done = 0, waiting = 0;
  bool moved = false;
  for (const Fiber& f : fibers) done += f.state == State::done, waiting += f.state == State::at_block_barrier;
  for (unsigned warp = 0; warp < threads; warp += 32) {
    const unsigned end = std::min(threads, warp + 32);
    unsigned here = 0, gone = 0;
    for (unsigned t = warp; t < end; ++t)
      here += b.fibers[t].state == State::at_warp_barrier, gone += b.fibers[t].state == State::done;
    if (here > 0 && gone > 0) stop("a thread ended while others of its warp exchange values");
    if (here < end - warp) continue;
    for (unsigned t = warp; t < end; ++t) b.fibers[t].state = State::ready;
    moved = true;
  }
  if (waiting > 0 && waiting + done == threads) {
    for (Fiber& f : fibers)
      if (f.state == State::at_block_barrier) f.state = State::ready;
    moved = true;
  }
  return moved || done == threads;
}

// The value of a setting in the environment.
unsigned setting(const char* name, unsigned otherwise) {
  const char* const text = std::getenv(name);
  return text ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : otherwise;
}

// The order in which blocks and the threads of a block run: by index, or with GODWIT_EMULATED_ORDER=seed random.
class Order {
 public:
  Order() : seed_(setting("GODWIT_EMULATED_ORDER", 0)), random_(seed_) {}
  // The numbers below `count`, in a new order if the order is random.
  const std::vector<unsigned>& next(std::vector<unsigned>& numbers, unsigned count) {
    if (numbers.size() != count) {
      numbers.resize(count);
      std::iota(numbers.begin(), numbers.end(), 0u);
    }
    if (seed_ != 0) std::shuffle(numbers.begin(), numbers.end(), random_);
    return numbers;
  }

 private:
  unsigned seed_;
  std::mt19937 random_;
};

// `numbers` are those of the threads, in any order.
void run_block(Block& b, unsigned threads, Order& order, std::vector<unsigned>& numbers) {
  b.threads = threads;
  for (unsigned t = 0; t < threads; ++t) b.fibers[t].state = State::ready, b.fibers[t].turn = 0;
  for (bool all_done = false; !all_done;) {
    all_done = true;
    for (const unsigned t : order.next(numbers, threads)) {
      if (b.fibers[t].state == State::done) continue;
      all_done = false;
      if (b.fibers[t].state != State::ready) continue;
      b.running = t;
      threadIdx = dim3(t);
      resume(b);
    }
    if (!all_done && !release(b)) stop("its threads wait at different barriers");
  }
}

thread_local int current_device = 0;

// The work queued on a stream since its capture began.
struct Capture {
  std::vector<Work> nodes;
  bool spoilt = false;
  int syncs = 0;  // synchronizations of its device before the capture
};

// A stream or an event; belongs to the device that was current at its creation.
template <class Handle>
struct Of : Handle {
  int device = current_device;
  std::unique_ptr<Capture> capture;    // streams only: the capture in progress, or null
  cudaStream_t recorded_in = nullptr;  // events only: the capturing stream that last recorded it
};
template <class Handle>
Of<Handle>& of(Handle* handle) {
  return *static_cast<Of<Handle>*>(handle);
}

thread_local std::vector<cudaStream_t> capturing;  // streams that this thread is capturing
thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
std::atomic<int> captures_of_device[2], syncs_of_device[2];

cudaError_t spoil(cudaError_t error) {
  for (const cudaStream_t stream : capturing) of(stream).capture->spoilt = true;
  return error;
}
// True if a call is forbidden now: the thread is capturing, and its capture mode is not relaxed.
bool unsafe() { return !capturing.empty() && mode != cudaStreamCaptureModeRelaxed; }

// Device allocations by address, to distinguish them from host memory.
struct Memory {
  std::mutex mutex;
  std::map<const std::byte*, size_t> blocks;
  size_t used = 0;

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

}  // namespace

cudaError_t run_grid(dim3 grid, dim3 threads, const std::function<void()>& thread) {
  if (grid.x == 0 || threads.x == 0 || threads.x > kMostThreads || threads.y * threads.z * grid.y * grid.z != 1)
    return cudaErrorInvalidConfiguration;
  Block& b = block();
  b.thread = &thread;
  gridDim = grid;
  blockDim = threads;
  Order order;
  std::vector<unsigned> blocks, of_block;
  for (const unsigned i : order.next(blocks, grid.x)) {
    blockIdx = dim3(i);
    run_block(b, threads.x, order, of_block);
  }
  return cudaSuccess;
}

cudaError_t give(cudaStream_t stream, Work work) {
  if (!stream || !of(stream).capture) return work();
  of(stream).capture->nodes.push_back(std::move(work));
  return cudaSuccess;
}

bool in_device_memory(const void* begin, size_t bytes) { return memory().holds(begin, bytes); }
size_t used_bytes() {
  std::lock_guard lock(memory().mutex);
  return memory().used;
}
void block_barrier() { wait_at(State::at_block_barrier); }
void warp_barrier() { wait_at(State::at_warp_barrier); }
unsigned next_turn() { return block().fibers[block().running].turn ^= 1; }
std::byte* lane_slot(unsigned turn, unsigned lane) { return block().slots[turn][threadIdx.x / 32 * 32 + lane]; }

}  // namespace emulated

using emulated::memory;
using emulated::of;
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
    case cudaErrorPeerAccessAlreadyEnabled: return "peer access is already enabled";
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
  return emulated::captures_of_device[emulated::current_device] > 0 ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
  std::snprintf(id, static_cast<size_t>(bytes), "0000:%02x:00.0", 0x40 + device);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = emulated::capability / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = emulated::capability % 10; break;
    default: *value = static_cast<int>(emulated::setting("GODWIT_EMULATED_MULTIPROCESSORS", 1));
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
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (!*data) return cudaErrorMemoryAllocation;
  std::memset(*data, 0xFF, bytes);
  m.blocks.emplace(static_cast<std::byte*>(*data), bytes);
  m.used += bytes;
  return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  ++emulated::counts.allocations;
  if (unsafe()) return spoil(cudaErrorStreamCaptureUnsupported);
  auto& m = memory();
  std::lock_guard lock(m.mutex);
  const auto block = m.blocks.find(static_cast<std::byte*>(data));
  if (block == m.blocks.end()) return cudaErrorInvalidValue;
  m.used -= block->second;
  m.blocks.erase(block);
  std::free(data);
  return cudaSuccess;
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
  *data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return *data ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void* data) {
  ++emulated::counts.allocations;
  std::free(data);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  ++emulated::counts.copies[kind];
  emulated::counts.copied_bytes[kind] += static_cast<int64_t>(bytes);
  return emulated::give(stream, [=] {
    const bool from_device = kind != cudaMemcpyHostToDevice, to_device = kind != cudaMemcpyDeviceToHost;
    if (memory().holds(from, bytes) != from_device || memory().holds(to, bytes) != to_device)
      return cudaErrorInvalidValue;
    std::memcpy(to, from, bytes);
    return cudaSuccess;
  });
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  ++emulated::counts.memsets;
  if (bytes == 0 && of(stream).capture) return spoil(cudaErrorInvalidValue);  // a graph cannot contain an empty memset
  return emulated::give(stream, [=] {
    if (!memory().holds(data, bytes)) return cudaErrorInvalidValue;
    std::memset(data, value, bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return *least = 0, *greatest = -5, cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  return *stream = new emulated::Of<CUstream_st>, (*stream)->priority = priority, cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return *priority = stream->priority, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return delete &of(stream), cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ++emulated::counts.synchronizations;
  return of(stream).capture ? spoil(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}
// On a GPU, waiting for an event of a capture adds the waiting stream to that capture. Here it is an error, because
// Godwit's captures have one stream.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const bool same = of(event).recorded_in == (of(stream).capture ? stream : nullptr);
  return same ? cudaSuccess : spoil(cudaErrorStreamCaptureIsolation);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return *event = new emulated::Of<CUevent_st>, cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete &of(event), cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (of(event).device != of(stream).device) return cudaErrorInvalidDevice;
  of(event).recorded_in = of(stream).capture ? stream : nullptr;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ++emulated::counts.synchronizations;
  return of(event).recorded_in ? spoil(cudaErrorCapturedEvent) : cudaSuccess;
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
  return emulated::give(stream, [exec] {
    for (const Work& work : exec->nodes)
      if (const cudaError_t error = work(); error != cudaSuccess) return error;
    return cudaSuccess;
  });
}
