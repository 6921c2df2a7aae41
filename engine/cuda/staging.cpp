#include "engine/cuda/staging.h"

#include <algorithm>
#include <cstring>

namespace godwit {
namespace {

class PinnedMemory : public MemorySource {
 public:
  std::byte* allocate(int64_t bytes) override {
    void* data = nullptr;
    const cudaError_t status = cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocPortable);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // not one for later calls to report
      return nullptr;
    }
    cuda_check(status, "cudaHostAlloc");
    return static_cast<std::byte*>(data);
  }
  void release(std::byte* data) override { cudaFreeHost(data); }
  std::string state() const override { return ", in page-locked memory"; }
};

}  // namespace

Staging::~Staging() {
  for (const Slot& slot : slots_)
    if (slot.data) cudaFreeHost(slot.data);
}

void Staging::copy(const void* from, void* to, int64_t bytes, cudaStream_t stream) {
  for (int64_t done = 0; done < bytes; done += kSlotBytes) {
    Slot& slot = slots_[next_++ % slots_.size()];
    if (!slot.data)
      cuda_check(cudaHostAlloc(reinterpret_cast<void**>(&slot.data), kSlotBytes, cudaHostAllocDefault),
                 "cudaHostAlloc");
    slot.copied.synchronize();
    const auto count = static_cast<size_t>(std::min(kSlotBytes, bytes - done));
    std::memcpy(slot.data, static_cast<const std::byte*>(from) + done, count);
    cuda_check(cudaMemcpyAsync(static_cast<std::byte*>(to) + done, slot.data, count, cudaMemcpyHostToDevice, stream),
               "cudaMemcpyAsync");
    slot.copied.record(stream);
  }
}

std::shared_ptr<Pool> make_pinned_pool() { return std::make_shared<Pool>(std::make_unique<PinnedMemory>()); }

}  // namespace godwit
