#include "engine/pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "engine/check.h"

namespace godwit {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kAddressSpace = int64_t{1} << 47;  // no process has more

// Eight block sizes per power of two: at most an eighth is wasted, and few distinct sizes are cached.
int64_t block_size(int64_t bytes) {
  const uint64_t wanted = static_cast<uint64_t>(std::max<int64_t>(bytes, kAlignment));
  const uint64_t step = std::max<uint64_t>(std::bit_floor(wanted) / 8, kAlignment);
  return static_cast<int64_t>((wanted + step - 1) / step * step);
}

void* system_allocate(int64_t size) {
  const int64_t alignment = size >= kHugePage ? kHugePage : kAlignment;
  const int64_t rounded = (size + alignment - 1) / alignment * alignment;
  void* data = std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(rounded));
  if (data && size >= kHugePage) madvise(data, static_cast<size_t>(rounded), MADV_HUGEPAGE);
  return data;
}

}  // namespace

Pool::~Pool() { trim(); }

void* Pool::allocate(int64_t bytes) {
  const int64_t size = block_size(bytes);
  std::lock_guard lock(mutex_);
  void* data = nullptr;
  if (auto found = cached_.find(size); found != cached_.end() && !found->second.empty()) {
    data = found->second.back();
    found->second.pop_back();
  } else {
    data = bytes <= kAddressSpace ? system_allocate(size) : nullptr;
    check(data != nullptr, "out of memory: ", bytes, " bytes asked for, ", stats_.bytes_in_use,
          " in use by this rank; lower --batch or the number of ranks on this machine");
    stats_.bytes_reserved += size;
    ++stats_.system_allocations;
  }
  stats_.bytes_in_use += bytes;
  stats_.peak_bytes_in_use = std::max(stats_.peak_bytes_in_use, stats_.bytes_in_use);
  return data;
}

void Pool::release(void* data, int64_t bytes) {
  std::lock_guard lock(mutex_);
  cached_[block_size(bytes)].push_back(data);
  stats_.bytes_in_use -= bytes;
}

void Pool::trim() {
  std::lock_guard lock(mutex_);
  for (auto& [size, blocks] : cached_) {
    for (void* block : blocks) std::free(block);
    stats_.bytes_reserved -= size * static_cast<int64_t>(blocks.size());
  }
  cached_.clear();
}

void Pool::reset_peak() {
  std::lock_guard lock(mutex_);
  stats_.peak_bytes_in_use = stats_.bytes_in_use;
}

PoolStats Pool::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

Buffer::Buffer(std::shared_ptr<Pool> pool, int64_t bytes) : bytes_(bytes) {
  auto* data = static_cast<std::byte*>(pool->allocate(bytes));
  data_ = std::shared_ptr<std::byte>(data, [pool, bytes](std::byte* block) { pool->release(block, bytes); });
}

}  // namespace godwit
