// Queues of the emulated streams. Usually, work runs as soon as it is queued. If GODWIT_EMULATED_STREAMS=SEED defers
// it, work stays queued until a synchronization needs it, and runs in a random order that streams and events allow.
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
// [stream] -> position of the last item of this stream that has happened before
using Clock = std::vector<unsigned>;

struct Stream;

// A point in a stream, recorded by an event or a synchronization.
struct Mark {
  Stream* stream;
  bool done = false;
  Clock clock = {};  // of the stream at this point, once done
  double time = 0;   // emulated time of the stream in milliseconds at this point, once done
  std::chrono::steady_clock::time_point when = {};  // time at which it was done
};

struct Item {
  Label label = {};
  Work run = nullptr;
  std::function<bool()> ready = nullptr;  // null: always; called when the item is the first of its queue
  std::shared_ptr<Mark> wait = nullptr, mark = nullptr;
  std::span<std::byte> host = {};  // page-locked memory that the item reads, or writes if `to_host`
  bool to_host = false;
  std::shared_ptr<Clock> meeting = nullptr;  // of items that wait for each other: work before any of them
  std::array<void*, 12> callers = {};        // of the host, when it queued deferred work
  Clock synchronized = {};                   // work that the host had waited for when it queued the item
};

// The work queued on a stream since its capture began.
struct Capture {
  std::vector<Item> nodes;
  bool spoilt = false;
  int syncs = 0;  // synchronizations of its device before the capture
};

struct Stream : CUstream_st {
  explicit Stream(int of_device) : device(of_device) {}
  const int device;
  std::unique_ptr<Capture> capture;  // in progress, or null
  // Used under the lock of streams.cpp:
  std::deque<Item> queue;
  unsigned number = 0;
  Clock clock;
  cudaError_t error = cudaSuccess;  // of an item, until a synchronization reports it
  double time = 0;                  // milliseconds that its work took; changed by the work
};

unsigned setting(const char* name, unsigned otherwise);  // a number from the environment

// All functions are thread-safe. Queued items run one at a time, on the threads that queue or synchronize.
void open(Stream& stream);
void close(Stream& stream);  // runs its queue first
// Queues an item. Returns its error if it ran at once.
cudaError_t push(Stream& stream, Item item);
std::shared_ptr<Mark> record(Stream& stream);
void await(const Mark& mark);  // returns when the mark is done
cudaError_t await(Stream& stream);
void await_device(int device);
cudaError_t query(Stream& stream);  // cudaErrorNotReady if items remain; runs an item
bool query(const Mark& mark);       // runs nothing, and does not count as a wait of the host
void progress();                    // runs an item of any stream, as a GPU does while the host waits elsewhere
// The first launch of a kernel on a device loads it, and waits until no item there waits for other ranks. Ends the
// process if this takes longer than `loading_limit`.
void load(const void* kernel, int device);
inline std::chrono::milliseconds loading_limit{20'000};
void wake();  // tells waiting threads that an item may be ready

}  // namespace emulated
