#include "engine/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <numeric>
#include <vector>

#include "tests/support.h"

namespace godwit {
namespace stream_test {

TEST(Stream, RunsTasksInOrderOnOneOtherThread) {
  Stream stream;
  std::vector<int> order;
  std::thread::id thread;
  for (int i = 0; i < 1000; ++i)
    stream.submit([&, i] {
      order.push_back(i);
      thread = std::this_thread::get_id();
    });
  stream.wait();
  std::vector<int> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
  EXPECT_NE(thread, std::this_thread::get_id());
  stream.wait();
}

TEST(Stream, InheritsTheCreatorsContext) {
  ContextGuard guard({.rank = 6, .threads = 1});
  Stream stream;
  Context seen;
  stream.submit([&] { seen = context(); });
  stream.wait();
  EXPECT_EQ(seen.rank, 6);
  EXPECT_EQ(seen.pool, context().pool);
}

TEST(Stream, DestructorFinishesQueuedTasks) {
  std::atomic<int> done = 0;
  {
    Stream stream;
    for (int i = 0; i < 20; ++i)
      stream.submit([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        ++done;
      });
  }
  EXPECT_EQ(done, 20);
}

TEST(Stream, AnExceptionEndsTheQueueAndIsRethrownByWaitAndSubmit) {
  std::atomic<int> after = 0;
  Stream stream;
  std::promise<void> go;
  stream.submit([&] { go.get_future().wait(); });
  stream.submit([] { fail("broken"); });
  stream.submit([&] { ++after; });
  go.set_value();
  EXPECT_EQ(error_of([&] { stream.wait(); }), "broken");
  EXPECT_EQ(error_of([&] { stream.submit([&] { ++after; }); }), "broken");
  EXPECT_EQ(error_of([&] { stream.wait(); }), "broken");
  EXPECT_EQ(after, 0);
}

TEST(Stream, DestructorSwallowsAnUnobservedException) {
  Stream stream;
  stream.submit([] { fail("broken"); });
}

// The captures of a task are destroyed before wait() returns, also if the task threw or was dropped.
TEST(Stream, FreesCapturesBeforeWaitReturns) {
  const auto held = std::make_shared<int>(1);
  Stream stream;
  stream.submit([held] {});
  stream.wait();
  EXPECT_EQ(held.use_count(), 1);
  std::promise<void> go;
  stream.submit([&] { go.get_future().wait(); });
  stream.submit([held] { fail("broken"); });
  stream.submit([held] {});
  go.set_value();
  EXPECT_THROW(stream.wait(), Error);
  EXPECT_EQ(held.use_count(), 1);
}

TEST(Stream, SeveralThreadsMaySubmit) {
  Stream stream;
  int64_t sum = 0;  // accessed by the stream's thread only
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 250; ++i) stream.submit([&] { ++sum; });
      stream.wait();
    });
  for (auto& thread : threads) thread.join();
  stream.wait();
  EXPECT_EQ(sum, 1000);
}

}  // namespace stream_test
}  // namespace godwit
