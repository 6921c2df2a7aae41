// Caching memory pool: page faults and malloc cost CPU training dearly, so freed blocks are kept and reused by size.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace godwit {

struct PoolStats {
  int64_t bytes_in_use = 0;       // held by live buffers, as asked for
  int64_t peak_bytes_in_use = 0;  // since the pool was made or reset_peak()
  int64_t bytes_reserved = 0;     // taken from the system, in use or cached
  int64_t system_allocations = 0;
};

// Thread-safe: a rank's compute and communication threads share one. Blocks are 64-byte aligned.
class Pool {
 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();

  void* allocate(int64_t bytes);          // throws Error when the system has no more memory
  void release(void* data, int64_t bytes);  // bytes as given to allocate()
  void trim();                            // gives cached blocks back to the system
  void reset_peak();
  PoolStats stats() const;

 private:
  mutable std::mutex mutex_;
  std::map<int64_t, std::vector<void*>> cached_;  // block size -> free blocks
  PoolStats stats_;
};

// Shared ownership of one block; the pool outlives its buffers.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::shared_ptr<Pool> pool, int64_t bytes);

  std::byte* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }
  bool shared() const { return data_.use_count() > 1; }
  explicit operator bool() const { return data_ != nullptr; }
  bool operator==(const Buffer& other) const { return data_ == other.data_; }

 private:
  std::shared_ptr<std::byte> data_;
  int64_t bytes_ = 0;
};

}  // namespace godwit
