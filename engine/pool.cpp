#include "engine/pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "engine/check.h"

namespace godwit {
namespace {

constexpr int64_t kAlignment = 64, kCudaAlignment = 256;
constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kFirstSegment = 8 << 20;
constexpr int64_t kLargestStep = 1 << 30;            // segments grow with the reserved bytes, up to this
constexpr int64_t kAddressSpace = int64_t{1} << 47;  // limit of a process's address space

int64_t rounded(int64_t bytes, int64_t unit) { return std::max(unit, (bytes + unit - 1) / unit * unit); }

class SystemMemory : public MemorySource {
 public:
  std::byte* allocate(int64_t bytes) override {
    void* data = std::aligned_alloc(static_cast<size_t>(kHugePage), static_cast<size_t>(bytes));
    if (data) madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
    return static_cast<std::byte*>(data);
  }
  bool release(std::byte* data) override {
    std::free(data);
    return true;
  }
};

}  // namespace

Pool::Pool() : Pool(std::make_unique<SystemMemory>()) {}

Pool::Pool(std::unique_ptr<MemorySource> source)
    : source_(std::move(source)),
      device_(source_->device()),
      alignment_(device_.is_cuda() ? kCudaAlignment : kAlignment) {}

Pool::~Pool() { trim(); }

Pool::Blocks::iterator Pool::take(int64_t bytes) {
  if (const auto found = free_.lower_bound({bytes, nullptr}); found != free_.end()) {
    const auto block = blocks_.find(found->second);
    free_.erase(found);
    return block;
  }
  const int64_t growth = std::clamp(stats_.bytes_reserved, kFirstSegment, kLargestStep);
  std::byte* data = nullptr;
  int64_t size = 0;
  for (const int64_t wanted : {std::max(bytes, growth), bytes}) {  // if memory is short, allocate only what is needed
    size = rounded(wanted, kHugePage);
    if ((data = source_->allocate(size))) break;
  }
  if (!data) {  // free segments may be too small: release them and retry
    release_free_segments();
    data = source_->allocate(size);
  }
  if (!data) return blocks_.end();
  stats_.bytes_reserved += size;
  ++stats_.system_allocations;
  return blocks_.emplace(data, Block{size, true, true, true}).first;
}

void* Pool::allocate(int64_t bytes) {
  std::lock_guard lock(mutex_);
  const auto block = bytes <= kAddressSpace ? take(rounded(bytes, alignment_)) : blocks_.end();
  if (block == blocks_.end()) [[unlikely]]
    fail("out of memory: ", bytes, " bytes requested, ", stats_.bytes_in_use, " in use by this rank", source_->state(),
         "; lower --batch or the number of ranks on this ", device_.is_cuda() ? "GPU" : "machine",
         ", or choose a smaller model");
  const int64_t size = rounded(bytes, alignment_);
  if (block->second.bytes > size) {  // the remainder stays free
    const auto rest = blocks_.emplace_hint(std::next(block), block->first + size,
                                           Block{block->second.bytes - size, true, false, block->second.last});
    free_.emplace(rest->second.bytes, rest->first);
    block->second.bytes = size;
    block->second.last = false;
  }
  block->second.free = false;
  stats_.bytes_in_use += bytes;
  stats_.peak_bytes_in_use = std::max(stats_.peak_bytes_in_use, stats_.bytes_in_use);
  return block->first;
}

void Pool::give_back(Blocks::iterator block) {
  const auto merge = [this](Blocks::iterator left, Blocks::iterator right) {
    left->second.bytes += right->second.bytes;
    left->second.last = right->second.last;
    blocks_.erase(right);
    return left;
  };
  block->second.free = true;
  if (const auto next = std::next(block); !block->second.last && next->second.free) {
    free_.erase({next->second.bytes, next->first});
    block = merge(block, next);
  }
  if (!block->second.first && std::prev(block)->second.free) {
    const auto previous = std::prev(block);
    free_.erase({previous->second.bytes, previous->first});
    block = merge(previous, block);
  }
  free_.emplace(block->second.bytes, block->first);
}

void Pool::release(void* data, int64_t bytes) {
  source_->recycle(static_cast<std::byte*>(data), bytes);
  std::lock_guard lock(mutex_);
  give_back(blocks_.find(static_cast<std::byte*>(data)));
  stats_.bytes_in_use -= bytes;
}

void Pool::trim() {
  std::lock_guard lock(mutex_);
  release_free_segments();
}

void Pool::release_free_segments() {
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    const auto [bytes, is_free, first, last] = block->second;
    if (!is_free || !first || !last || !source_->release(block->first)) {
      ++block;
      continue;
    }
    free_.erase({bytes, block->first});
    stats_.bytes_reserved -= bytes;
    block = blocks_.erase(block);
  }
}

void Pool::reset_peak() {
  std::lock_guard lock(mutex_);
  stats_.peak_bytes_in_use = stats_.bytes_in_use;
}

PoolStats Pool::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

Buffer::Buffer(std::shared_ptr<Pool> pool, int64_t bytes)
    : storage_(std::make_shared<Storage>()), bytes_(bytes), device_(pool->device()) {
  storage_->data = static_cast<std::byte*>(pool->allocate(bytes));
  storage_->bytes = bytes;
  storage_->pool = std::move(pool);
}

Buffer::Buffer(std::shared_ptr<std::byte> data, int64_t bytes) : bytes_(bytes) {
  if (!data) return;
  storage_ = std::make_shared<Storage>();
  storage_->data = data.get();
  storage_->owner = std::move(data);
}

Buffer Buffer::detached(int64_t bytes, Device device) {
  Buffer buffer;
  buffer.storage_ = std::make_shared<Storage>();
  buffer.bytes_ = bytes;
  buffer.device_ = device;
  return buffer;
}

void Buffer::attach(const Buffer& memory) const {
  check(attachable(), "buffer: memory of a pool cannot be replaced; attach() needs a detached buffer");
  check(memory.bytes_ == bytes_ && memory.device_ == device_ && memory.data(), "buffer: ", memory.bytes_, " bytes on ",
        memory.device_, " were attached, expected ", bytes_, " bytes on ", device_);
  storage_->data = memory.storage_->data;
  storage_->owner = memory.storage_;
}

void Buffer::detach() const {
  check(attachable(), "buffer: memory of a pool cannot be detached; only attached memory can");
  storage_->data = nullptr;
  storage_->owner = nullptr;
}

}  // namespace godwit
