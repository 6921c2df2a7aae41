// Context: the state of one rank's thread. It is per thread because several ranks can run as threads of one process.
#pragma once
#include <concepts>
#include <cstdint>
#include <memory>

#include "engine/pool.h"

namespace godwit {

class Trace;

// State of a thread, read by the operations that the thread runs.
struct Context {
  int rank = 0;                                           // rank in the world
  int threads = 1;                                        // threads of one parallel loop or library call of this rank
  bool grad_enabled = true;                               // false under NoGrad
  std::shared_ptr<Pool> pool = std::make_shared<Pool>();  // memory of new CPU tensors
  // Maximum vector width of Godwit's own loops, in bits. The processor may limit it further. Results do not depend on
  // it.
  int vector_bits = 512;
  Device device = kCpu;   // device of new tensors
  std::shared_ptr<CudaContext> cuda = nullptr;  // on a GPU: stream, pool and library handles
  std::shared_ptr<Trace> trace = nullptr;       // timeline of the rank's threads; null: not recorded
  bool tf32 = false;                            // on a GPU: float32 products may round their factors to 11 bits
  bool dnn_timing = false;                      // on a GPU: timed_plan() chooses cuDNN's engines
};

// The calling thread's context. Initially rank 0, all cores (one without OpenMP) and a new pool.
const Context& context();

// A copy of the calling thread's context on `device`. On a GPU, the copy has a new stream, pool and library handles.
// Throws if the device cannot be used. `high_priority`: create the CUDA stream with the highest priority.
Context context_on(Device device, bool high_priority = false);

// Blocks until all work queued on the calling thread's stream has finished. Returns immediately on the CPU. Throws if
// work of the rank was aborted, such as a collective that a peer never joined.
void synchronize();

// Sets the calling thread's context for a scope. A communication thread uses this class to adopt its rank's context.
class ContextGuard {
 public:
  explicit ContextGuard(Context next);  // sets the context until the destructor runs
  // Sets a changed copy of the current context: ContextGuard guard([](Context& next) { next.threads = 1; });
  template <std::invocable<Context&> Change>
  explicit ContextGuard(const Change& change)
      : ContextGuard([&] {
          Context next = context();
          change(next);
          return next;
        }()) {}
  ~ContextGuard();
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  Context previous_;
};

// Disables recording of the autograd graph on the calling thread, for a scope.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool previous_;
};

int hardware_threads();  // number of cores that this process may run on

}  // namespace godwit
