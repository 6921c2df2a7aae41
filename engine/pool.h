// Caching memory pool: page faults and malloc cost CPU training dearly, so freed memory is kept and reused.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "engine/device.h"

namespace godwit {

struct PoolStats {
  int64_t bytes_in_use = 0;       // held by live buffers, as asked for
  int64_t peak_bytes_in_use = 0;  // since the pool was made or reset_peak()
  int64_t bytes_reserved = 0;     // taken from the system, in use or not; pages never touched cost nothing
  int64_t system_allocations = 0;
};

// Where a pool takes its segments from.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  virtual std::byte* allocate(int64_t bytes) = 0;  // aligned to 256 bytes; nullptr when there is no more
  virtual bool release(std::byte* data) = 0;       // false: it cannot be released now, and stays allocated
  virtual Device device() const { return kCpu; }
  virtual std::string state() const { return ""; }  // how much there is, for the message when there is no more
};

// Large segments of one source's memory, cut into blocks by best fit; free neighbours merge, so that what the forward
// pass held in many small blocks serves the large ones of the backward pass. Thread-safe: a rank's compute and
// communication threads share one. Blocks are aligned to 64 bytes, a GPU's to 256. Memory of a GPU is reused in the
// order of the host's calls, so a pool there belongs to one stream: a tensor that another stream touches must be kept
// until the pool's stream waits for that one.
class Pool {
 public:
  Pool();  // of the system's memory
  explicit Pool(std::unique_ptr<MemorySource> source);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();

  void* allocate(int64_t bytes);            // throws Error when the system has no more memory
  void release(void* data, int64_t bytes);  // bytes as given to allocate()
  void trim();                              // gives segments without a live block back to the system, where it can
  void reset_peak();
  PoolStats stats() const;
  Device device() const { return device_; }

 private:
  struct Block {
    int64_t bytes;
    bool free, first, last;  // first, last: of its segment
  };
  using Blocks = std::map<std::byte*, Block>;

  Blocks::iterator take(int64_t bytes);  // a free block of at least so many bytes, no longer listed as free
  void give_back(Blocks::iterator block);
  void release_free_segments();

  const std::unique_ptr<MemorySource> source_;
  const Device device_;
  const int64_t alignment_;
  mutable std::mutex mutex_;
  Blocks blocks_;                                  // all, by address
  std::set<std::pair<int64_t, std::byte*>> free_;  // (bytes, address)
  PoolStats stats_;
};

// Shared ownership of one block; the pool outlives its buffers.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::shared_ptr<Pool> pool, int64_t bytes);
  Buffer(std::shared_ptr<std::byte> data, int64_t bytes)
      : data_(std::move(data)), bytes_(bytes) {}  // not a pool's: the CPU's

  std::byte* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  bool shared() const { return data_.use_count() > 1; }
  explicit operator bool() const { return data_ != nullptr; }
  bool operator==(const Buffer& other) const { return data_ == other.data_; }

 private:
  std::shared_ptr<std::byte> data_;
  int64_t bytes_ = 0;
  Device device_;
};

}  // namespace godwit
