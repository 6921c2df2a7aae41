#include "engine/pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <thread>

#include "engine/philox.h"
#include "tests/support.h"

namespace godwit {
namespace pool_test {

TEST(Pool, BlocksAreAlignedAndReused) {
  Pool pool;
  for (int64_t bytes : {0, 1, 63, 64, 65, 1000, 4097, 3 << 20}) {
    void* block = pool.allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u);
    std::memset(block, 1, static_cast<size_t>(bytes));
    pool.release(block, bytes);
    const int64_t calls = pool.stats().system_allocations;
    void* again = pool.allocate(bytes);
    EXPECT_EQ(again, block);
    EXPECT_EQ(pool.stats().system_allocations, calls);
    pool.release(again, bytes);
  }
}

TEST(Pool, FreeNeighborsAreMerged) {
  Pool pool;
  constexpr int64_t kBytes = 1 << 20;
  void* blocks[4];
  for (void*& block : blocks) block = pool.allocate(kBytes);
  const int64_t calls = pool.stats().system_allocations;
  for (int i : {2, 0, 3, 1}) pool.release(blocks[i], kBytes);
  EXPECT_EQ(pool.allocate(4 * kBytes), blocks[0]) << "four small blocks are merged for a large one";
  EXPECT_EQ(pool.stats().system_allocations, calls);
  pool.release(blocks[0], 4 * kBytes);
}

TEST(Pool, TakesTheSmallestBlockThatFits) {
  Pool pool;
  void* large = pool.allocate(1000 * 64);
  void* wall = pool.allocate(64);
  void* small = pool.allocate(10 * 64);
  void* end = pool.allocate(64);
  pool.release(large, 1000 * 64);
  pool.release(small, 10 * 64);
  EXPECT_EQ(pool.allocate(10 * 64 - 63), small);
  EXPECT_EQ(pool.allocate(11 * 64), large);
  for (auto [block, bytes] : {std::pair{wall, 64}, {end, 64}, {small, 577}, {large, 704}}) pool.release(block, bytes);
  pool.trim();
  EXPECT_EQ(pool.stats().bytes_reserved, 0);
}

// After any sequence of allocations and frees, live blocks do not overlap. At the end all memory is one block again.
TEST(Pool, LiveBlocksNeverOverlap) {
  Pool pool;
  RandomStream random(1, Purpose::test);
  std::map<std::byte*, int64_t> live;
  for (int i = 0; i < 20000; ++i) {
    if (live.size() < 100 && random.below(2)) {
      const int64_t bytes = random.below(1u << (4 + random.below(16)));
      auto* block = static_cast<std::byte*>(pool.allocate(bytes));
      const auto [at, fresh] = live.emplace(block, bytes);
      ASSERT_TRUE(fresh);
      if (at != live.begin()) {
        ASSERT_LE(std::prev(at)->first + std::prev(at)->second, block);
      }
      if (std::next(at) != live.end()) {
        ASSERT_LE(block + bytes, std::next(at)->first);
      }
    } else if (!live.empty()) {
      auto at = std::next(live.begin(), random.below(static_cast<uint32_t>(live.size())));
      pool.release(at->first, at->second);
      live.erase(at);
    }
  }
  for (const auto& [block, bytes] : live) pool.release(block, bytes);
  EXPECT_EQ(pool.stats().bytes_in_use, 0);
  pool.trim();
  EXPECT_EQ(pool.stats().bytes_reserved, 0);
}

TEST(Pool, CountsBytesInUsePeakAndReserved) {
  const auto pool = std::make_shared<Pool>();
  {
    Buffer a(pool, 100), b(pool, 200);
    EXPECT_EQ(pool->stats().bytes_in_use, 300);
    b = Buffer();
    EXPECT_EQ(pool->stats().bytes_in_use, 100);
    EXPECT_EQ(pool->stats().peak_bytes_in_use, 300);
    pool->reset_peak();
    EXPECT_EQ(pool->stats().peak_bytes_in_use, 100);
    pool->trim();
    EXPECT_GE(pool->stats().bytes_reserved, 100) << "memory in use stays reserved";
  }
  EXPECT_EQ(pool->stats().bytes_in_use, 0);
  pool->trim();
  EXPECT_EQ(pool->stats().bytes_reserved, 0);
}

TEST(Pool, OutlivesItsHandle) {
  auto pool = std::make_shared<Pool>();
  Buffer buffer(pool, 10), other = buffer;
  pool.reset();
  buffer = Buffer();
  EXPECT_FALSE(other.shared());
  std::memset(other.data(), 1, 10);
}

TEST(Pool, RefusesImpossibleSizes) {
  Pool pool;
  for (int64_t bytes : {int64_t{1} << 48, std::numeric_limits<int64_t>::max()})
    EXPECT_THAT(error_of([&] { pool.allocate(bytes); }), testing::HasSubstr("out of memory: " + std::to_string(bytes)));
  EXPECT_EQ(pool.stats().bytes_in_use, 0);
  EXPECT_EQ(pool.stats().bytes_reserved, 0);
}

// A memory source with a limit, like a GPU.
class Small : public MemorySource {
 public:
  explicit Small(int64_t& left, const bool* busy = nullptr) : left_(left), busy_(busy) {}
  std::byte* allocate(int64_t bytes) override {
    if (bytes > left_) return nullptr;
    left_ -= bytes;
    auto* data = static_cast<std::byte*>(std::aligned_alloc(256, static_cast<size_t>(bytes)));
    sizes_[data] = bytes;
    return data;
  }
  bool release(std::byte* data) override {
    if (busy_ && *busy_) return false;
    left_ += sizes_.at(data);
    std::free(data);
    return true;
  }
  Device device() const override { return cuda_device(1); }
  std::string state() const override { return detail::concat(", ", left_, " free"); }

 private:
  int64_t& left_;
  const bool* busy_;  // while true, nothing is released
  std::map<std::byte*, int64_t> sizes_;
};

TEST(Pool, AllocatesFromAnySource) {
  constexpr int64_t kMiB = 1 << 20;
  int64_t left = 40 * kMiB;
  {
    Pool pool(std::make_unique<Small>(left));
    EXPECT_EQ(pool.device(), cuda_device(1));
    void *a = pool.allocate(1), *b = pool.allocate(1);
    EXPECT_EQ(static_cast<std::byte*>(b) - static_cast<std::byte*>(a), 256)
        << "alignment expected by CUDA libraries";
    pool.release(a, 1);
    pool.release(b, 1);
    void* large = pool.allocate(36 * kMiB);
    EXPECT_EQ(left, 4 * kMiB) << "the free first segment was released to make room";
    EXPECT_THAT(error_of([&] { pool.allocate(5 * kMiB); }),
                testing::AllOf(testing::HasSubstr("5242880 bytes requested, 37748736 in use"),
                               testing::HasSubstr("4194304 free; lower --batch or the number of ranks on this GPU, or "
                                                  "choose a smaller model")));
    pool.release(large, 36 * kMiB);
  }
  EXPECT_EQ(left, 40 * kMiB);
}

TEST(Pool, KeepsMemoryThatItsSourceDoesNotRelease) {
  constexpr int64_t kMiB = 1 << 20;
  int64_t left = 40 * kMiB;
  bool busy = true;
  {
    Pool pool(std::make_unique<Small>(left, &busy));
    pool.release(pool.allocate(8 * kMiB), 8 * kMiB);
    EXPECT_THAT(error_of([&] { pool.allocate(36 * kMiB); }), testing::HasSubstr("out of memory"));
    pool.trim();
    EXPECT_EQ(pool.stats().bytes_reserved, 8 * kMiB);
    EXPECT_EQ(left, 32 * kMiB);
    pool.release(pool.allocate(8 * kMiB), 8 * kMiB);
    EXPECT_EQ(pool.stats().system_allocations, 1) << "the segment is reused";
    busy = false;
    pool.trim();
    EXPECT_EQ(pool.stats().bytes_reserved, 0);
  }
  EXPECT_EQ(left, 40 * kMiB);
}

// Threads allocate, fill and free concurrently. A block given to two threads would show in its bytes.
TEST(Pool, IsThreadSafe) {
  const auto pool = std::make_shared<Pool>();
  std::vector<std::thread> threads;
  std::vector<int> damaged(4);
  for (uint32_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      RandomStream random(t, Purpose::test);
      std::vector<Buffer> held(8);
      for (int i = 0; i < 2000; ++i) {
        Buffer& buffer = held[random.below(8)];
        for (int64_t k = 0; k < buffer.bytes(); ++k) damaged[t] += buffer.data()[k] != std::byte(t);
        buffer = Buffer(pool, random.below(300));
        std::memset(buffer.data(), static_cast<int>(t), static_cast<size_t>(buffer.bytes()));
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(damaged, testing::Each(0));
  EXPECT_EQ(pool->stats().bytes_in_use, 0);
}

}  // namespace pool_test
}  // namespace godwit
