#include "engine/pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <thread>

#include "engine/philox.h"
#include "tests/support.h"

namespace godwit {
namespace {

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

TEST(Pool, NearSizesShareABlockAndWasteLittle) {
  Pool pool;
  void* block = pool.allocate(1000 * 1000);
  pool.release(block, 1000 * 1000);
  EXPECT_EQ(pool.allocate(999 * 1000), block);
  EXPECT_LE(pool.stats().bytes_reserved, 1000 * 1000 * 9 / 8);
  pool.release(block, 999 * 1000);
}

TEST(Pool, CountsBytesPeakAndReserve) {
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
    EXPECT_EQ(pool->stats().bytes_reserved, 128) << "what is in use stays";
  }
  EXPECT_EQ(pool->stats().bytes_in_use, 0);
  pool->trim();
  EXPECT_EQ(pool->stats().bytes_reserved, 0);
}

TEST(Pool, OutlivesItsName) {
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

// Threads allocate, fill and free at once; a block given to two of them would show in its bytes.
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

}  // namespace
}  // namespace godwit
