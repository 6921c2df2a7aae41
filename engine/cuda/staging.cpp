#include "engine/cuda/staging.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace godwit {
namespace {

class PinnedMemory : public MemorySource {
 public:
  std::byte* allocate(int64_t bytes) override {
    void* data = nullptr;
    const cudaError_t status = cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocPortable);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // clears the error, so that later calls do not report it
      return nullptr;
    }
    cuda_check(status, "cudaHostAlloc");
    return static_cast<std::byte*>(data);
  }
  bool release(std::byte* data) override { return cudaFreeHost(data) == cudaSuccess; }
  void recycle(std::byte* data, int64_t bytes) override {
    if (poison_) std::memset(data, kPoison, static_cast<size_t>(bytes));
  }
  std::string state() const override { return ", in page-locked memory"; }

 private:
  const bool poison_ = poison_released_memory();
};

}  // namespace

Staging::~Staging() {
  for (const Slot& slot : slots_)
    if (slot.data) cudaFreeHost(slot.data);
}

void Staging::copy(const void* from, void* to, int64_t bytes, cudaStream_t stream) {
  constexpr auto kSlot = static_cast<size_t>(kSlotBytes);
  for (Slot& slot : slots_)  // all at the first copy, because cudaHostAlloc() takes long
    if (!slot.data)
      cuda_check(cudaHostAlloc(reinterpret_cast<void**>(&slot.data), kSlot, cudaHostAllocDefault), "cudaHostAlloc");
  // next_ counts bytes over all slots. Consecutive small copies share a slot, so the host waits once per slot.
  for (int64_t done = 0; done < bytes;) {
    Slot& slot = slots_[next_ / kSlot];
    const size_t begin = next_ % kSlot, count = std::min(kSlot - begin, static_cast<size_t>(bytes - done));
    if (begin == 0) cuda_check(slot.copied.synchronize(), "cudaEventSynchronize");
    std::memcpy(slot.data + begin, static_cast<const std::byte*>(from) + done, count);
    cuda_check(cudaMemcpyAsync(static_cast<std::byte*>(to) + done, slot.data + begin, count, cudaMemcpyHostToDevice,
                               stream),
               "cudaMemcpyAsync");
    if (begin + count == kSlot) slot.copied.record(stream);  // after all copies from this slot
    next_ = (next_ + count) % (slots_.size() * kSlot);
    done += static_cast<int64_t>(count);
  }
}

bool poison_released_memory() {
  const char* const value = std::getenv("GODWIT_POISON");
  return value && std::strcmp(value, "1") == 0;
}

std::shared_ptr<Pool> make_pinned_pool() { return std::make_shared<Pool>(std::make_unique<PinnedMemory>()); }

}  // namespace godwit
