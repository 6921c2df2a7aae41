// What belongs to one rank: several ranks run as threads of one process, so nothing of this is process-wide.
#pragma once
#include <cstdint>
#include <memory>

#include "engine/pool.h"

namespace godwit {

struct Context {
  int rank = 0;
  int threads = 1;         // threads of one parallel loop or library call of this rank
  bool grad_enabled = true;
  std::shared_ptr<Pool> pool = std::make_shared<Pool>();
  int vector_bits = 512;  // widest vectors of our own loops, where the machine has them; results do not depend on it
  Device device = kCpu;   // where new tensors live
  std::shared_ptr<CudaContext> cuda = nullptr;  // on a GPU: its stream, pool and library handles
  bool tf32 = false;                            // float32 products on a GPU may round their factors to 11 bits
};

// The calling thread's context. A thread starts with one of its own (rank 0, all cores, a fresh pool).
const Context& context();

// The calling thread's context moved to a device; on a GPU with a stream, a pool and library handles of its own. Throws
// where the device cannot be used. `high_priority`: the stream's work goes before that of others.
Context context_on(Device device, bool high_priority = false);

// Until the thread's stream has done what was asked of it so far; at once on the CPU.
void synchronize();

// Sets the thread's context for a scope; a communication thread takes on its rank's this way.
class ContextGuard {
 public:
  explicit ContextGuard(Context next);
  ~ContextGuard();
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  Context previous_;
};

// No graph is recorded while one of these lives on the thread.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool previous_;
};

int hardware_threads();  // cores this process may run on

}  // namespace godwit
