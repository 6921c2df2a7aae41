// Pool: a caching memory pool. Page faults and malloc are expensive in CPU training, so released memory is kept and
// reused.
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

// Statistics of a Pool.
struct PoolStats {
  int64_t bytes_in_use = 0;        // requested bytes of all live buffers
  int64_t peak_bytes_in_use = 0;   // since construction or reset_peak()
  int64_t bytes_reserved = 0;      // taken from the system; untouched pages cost nothing
  int64_t system_allocations = 0;  // segments taken from the system since construction
};

// Allocates the segments of a pool.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  virtual std::byte* allocate(int64_t bytes) = 0;   // aligned to 256 bytes; nullptr if out of memory
  virtual bool release(std::byte* data) = 0;        // false: the segment cannot be released now and stays allocated
  virtual void recycle(std::byte*, int64_t) {}      // called when a block of the pool is released
  virtual Device device() const { return kCpu; }    // device of the memory
  virtual std::string state() const { return ""; }  // available memory, for the out-of-memory message
};

// A pool of large segments, split into blocks by best fit. Adjacent free blocks merge, so that many small blocks of the
// forward pass can serve large blocks of the backward pass. Thread-safe: the compute and communication threads of a
// rank share one pool. Blocks are aligned to 64 bytes, on a GPU to 256 bytes. GPU memory is reused in the order of the
// host's calls, so a GPU pool belongs to one stream. A tensor that a second stream uses must stay alive until the
// pool's stream waits for the second stream.
class Pool {
 public:
  Pool();  // a pool of system memory
  explicit Pool(std::unique_ptr<MemorySource> source);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();

  void* allocate(int64_t bytes);            // throws an Error if the system is out of memory
  void release(void* data, int64_t bytes);  // `bytes` as passed to allocate()
  void trim();  // returns segments without live blocks to the system, if the source can release them
  void reset_peak();  // sets the peak to the bytes in use
  PoolStats stats() const;  // statistics at the time of the call
  Device device() const { return device_; }  // device of the memory

 private:
  struct Block {
    int64_t bytes;
    bool free, first, last;  // first, last: position in the segment
  };
  using Blocks = std::map<std::byte*, Block>;

  Blocks::iterator take(int64_t bytes);  // removes a free block of at least `bytes` from the free list
  void give_back(Blocks::iterator block);
  void release_free_segments();

  const std::unique_ptr<MemorySource> source_;
  const Device device_;
  const int64_t alignment_;
  mutable std::mutex mutex_;
  Blocks blocks_;                                  // all blocks, by address
  std::set<std::pair<int64_t, std::byte*>> free_;  // (bytes, address)
  PoolStats stats_;
};

// Shared ownership of one block. A buffer keeps its pool alive.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::shared_ptr<Pool> pool, int64_t bytes);             // allocates
  Buffer(std::shared_ptr<std::byte> data, int64_t bytes);        // wraps external CPU memory
  static Buffer detached(int64_t bytes, Device device = kCpu);   // has no memory until attach()

  // Gives the memory of `memory` to all copies of a buffer from detached(). Not thread-safe: no other thread may use
  // the copies during the call.
  void attach(const Buffer& memory) const;
  void detach() const;  // removes the memory from all copies; not thread-safe
  bool attachable() const { return storage_ && !storage_->pool; }  // false if the buffer has memory of a pool

  std::byte* data() const { return storage_ ? storage_->data : nullptr; }            // first byte; null without memory
  int64_t bytes() const { return bytes_; }                                           // size in bytes
  Device device() const { return device_; }                                          // device of the memory
  bool shared() const { return storage_.use_count() > 1; }                           // whether the memory is shared
  explicit operator bool() const { return storage_ != nullptr; }                     // false for Buffer()
  bool operator==(const Buffer& other) const { return storage_ == other.storage_; }  // the same block

 private:
  struct Storage {
    std::byte* data = nullptr;
    int64_t bytes = 0;
    std::shared_ptr<Pool> pool = nullptr;   // null: external or attached memory
    std::shared_ptr<void> owner = nullptr;  // owner of external or attached memory
    Storage() = default;
    Storage(const Storage&) = delete;
    ~Storage() {
      if (pool) pool->release(data, bytes);
    }
  };

  std::shared_ptr<Storage> storage_;
  int64_t bytes_ = 0;
  Device device_;
};

}  // namespace godwit
