// Staging: host memory that a GPU reads by itself, in turn filled by the host and copied from.
#pragma once
#include <array>

#include "engine/cuda/handles.h"
#include "engine/pool.h"

namespace godwit {

class Staging {
 public:
  Staging() = default;
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Copies bytes of ordinary host memory to the GPU, in the stream's order. Returns when `from` has been read; it waits
  // for the GPU only where more than the slots hold is on its way.
  void copy(const void* from, void* to, int64_t bytes, cudaStream_t stream);

 private:
  static constexpr int64_t kSlotBytes = 4 << 20;
  struct Slot {
    std::byte* data = nullptr;
    CudaEvent copied;
  };
  std::array<Slot, 4> slots_;
  size_t next_ = 0;
};

// A pool of such memory, for tensors on the CPU that a stream reads or writes: whoever frees one has waited for that.
std::shared_ptr<Pool> make_pinned_pool();

}  // namespace godwit
