// Staging: a ring of page-locked staging buffers for asynchronous host-to-device copies.
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

  // Copies bytes from pageable host memory to the GPU, in stream order. Returns once `from` has been read. Blocks for
  // the GPU only if all buffers of the ring are in flight.
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

// With GODWIT_POISON=1 in the environment, the pools of GPU and page-locked memory fill released memory with this byte
// (a NaN pattern), so that tests detect uses after release.
constexpr int kPoison = 0xFF;
bool poison_released_memory();

// A pool of page-locked memory for CPU tensors that a stream reads or writes. Before releasing a tensor, synchronize
// with the stream.
std::shared_ptr<Pool> make_pinned_pool();

}  // namespace godwit
