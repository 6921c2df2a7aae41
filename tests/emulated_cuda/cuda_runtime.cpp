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
#include "races.h"
#include "streams.h"

struct CUgraph_st {
  std::vector<emulated::Item> nodes;
};
struct CUgraphExec_st {
  std::vector<emulated::Item> nodes;
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

struct Copy {
  void* to;
  const void* from;  // null: writes zeros
};

struct Fiber {
  jmp_buf place;
  State state;
  unsigned turn, block_barriers, warp_barriers;  // slot of the last exchange; numbers of barriers passed
  bool started = false;
  std::vector<Copy> copies;  // asynchronous, pending
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
  thread_local const auto here = std::make_unique<Block>();
  return *here;
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

// The order in which blocks and the threads of a block run: by index, or random with GODWIT_EMULATED_ORDER=SEED.
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

// Runs all threads of a block. `numbers` holds their order.
void run_block(Block& b, unsigned threads, Order& order, std::vector<unsigned>& numbers) {
  b.threads = threads;
  for (unsigned t = 0; t < threads; ++t) {
    Fiber& f = b.fibers[t];
    f.state = State::ready;
    f.turn = f.block_barriers = f.warp_barriers = 0;
  }
  for (bool all_done = false; !all_done;) {
    all_done = true;
    for (const unsigned t : order.next(numbers, threads)) {
      if (b.fibers[t].state == State::done) continue;
      all_done = false;
      if (b.fibers[t].state != State::ready) continue;
      b.running = t;
      threadIdx = dim3(t);
      begin_thread(blockIdx.x, t, b.fibers[t].block_barriers, b.fibers[t].warp_barriers);
      resume(b);
    }
    if (!all_done && !release(b)) stop("its threads wait at different barriers");
  }
}

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

bool can_run(dim3 grid, dim3 block) {
  return grid.x > 0 && block.x > 0 && block.x <= kMostThreads && block.y * block.z * grid.y * grid.z == 1;
}

cudaError_t run_grid(dim3 grid, dim3 threads, const std::function<void()>& thread) {
  if (!can_run(grid, threads)) return cudaErrorInvalidConfiguration;
  Block& b = block();
  b.thread = &thread;
  set_stacks(b.stacks.get(), kMostThreads * kStack);
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
size_t used_bytes() {
  std::lock_guard lock(memory().mutex);
  return memory().used;
}
// A fiber that passes a barrier is resumed by run_block(), after the barrier was counted.
void block_barrier() {
  ++block().fibers[block().running].block_barriers;
  wait_at(State::at_block_barrier);
}
void warp_barrier() { wait_at(State::at_warp_barrier); }
void warp_memory_barrier() {
  ++block().fibers[block().running].warp_barriers;
  wait_at(State::at_warp_barrier);
}

void start_copy(void* to, const void* from) {
  if (from) note_read(from, 16);
  note_write(to, 16);
  std::memset(to, 0xFF, 16);
  block().fibers[block().running].copies.push_back({to, from});
}
void await_copies() {
  auto& copies = block().fibers[block().running].copies;
  for (const Copy& copy : copies) {
    if (copy.from) note_read(copy.from, 16);
    note_write(copy.to, 16);
    if (copy.from) std::memcpy(copy.to, copy.from, 16);
    else std::memset(copy.to, 0, 16);
  }
  copies.clear();
}

unsigned next_turn() { return block().fibers[block().running].turn ^= 1; }
std::byte* lane_slot(unsigned turn, unsigned lane) { return block().slots[turn][threadIdx.x / 32 * 32 + lane]; }

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
