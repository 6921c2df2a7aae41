// Queues of the emulated streams. By default, work runs as soon as it is queued. If GODWIT_EMULATED_STREAMS=SEED is
// set, work stays queued until a synchronization needs it, and runs in a random order that streams and events allow.
#pragma once
#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cuda_runtime.h"

namespace emulated {

using Work = std::function<cudaError_t()>;
// [stream]: position of the last item of this stream that has happened before
using Clock = std::vector<unsigned>;

struct Stream;

// A point in a stream, recorded by an event or a synchronization.
struct Mark {
  Stream* stream;
  bool done = false;
  Clock clock = {};  // clock of the stream at this point, once done
  double time = 0;   // emulated time of the stream at this point in milliseconds, once done
  std::chrono::steady_clock::time_point when = {};  // time at which it was done
};

struct Item {
  Label label = {};
  Work run = nullptr;
  std::function<bool()> ready = nullptr;  // null: always ready; called when the item is the first of its queue
  std::shared_ptr<Mark> wait = nullptr, mark = nullptr;
  std::span<std::byte> host = {};  // page-locked memory that the item reads, or writes if `to_host`
  bool to_host = false;
  std::shared_ptr<Clock> meeting = nullptr;  // for items that wait for each other: work before any of them
  std::array<void*, 12> callers = {};        // call stack of the host when it queued deferred work
  Clock synchronized = {};                   // work that the host had waited for when it queued the item
};

// The work queued on a stream since its capture began.
struct Capture {
  std::vector<Item> nodes;
  bool spoilt = false;
  int syncs = 0;  // number of synchronizations of its device before the capture
};

struct Stream : CUstream_st {
  explicit Stream(int of_device) : device(of_device) {}
  const int device;
  std::unique_ptr<Capture> capture;  // null if no capture is in progress
  // The members below are used under the lock of streams.cpp:
  std::deque<Item> queue;
  unsigned number = 0;
  Clock clock;
  cudaError_t error = cudaSuccess;  // error of an item, until a synchronization reports it
  double time = 0;                  // milliseconds that the stream's work took; changed by the work
};

unsigned setting(const char* name, unsigned otherwise);  // a number from the environment; `otherwise` if it is not set

// All functions are thread-safe. Queued items run one at a time, on the threads that queue or synchronize.
void open(Stream& stream);
void close(Stream& stream);  // first runs the stream's queue
// Queues an item. Returns its error if it ran immediately.
cudaError_t push(Stream& stream, Item item);
std::shared_ptr<Mark> record(Stream& stream);
void await(const Mark& mark);  // returns when the mark is done
cudaError_t await(Stream& stream);
void await_device(int device);
cudaError_t query(Stream& stream);  // cudaErrorNotReady if items remain; runs one item
bool query(const Mark& mark);       // runs no item, and is not counted as a wait of the host
void progress();                    // runs an item of any stream, as a GPU does while the host waits elsewhere
// The first launch of a kernel on a device loads the kernel, and waits until no item on the device waits for other
// ranks. If this takes longer than `loading_limit`, the process ends.
void load(const void* kernel, int device);
inline std::chrono::milliseconds loading_limit{20'000};
void wake();  // notifies waiting threads that an item may be ready

}  // namespace emulated
