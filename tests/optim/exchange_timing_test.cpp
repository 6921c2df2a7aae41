#include "optim/exchange_timing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "comm/exchange/method.h"
#include "comm/transport/local.h"
#include "optim/sgd.h"

namespace godwit {
namespace exchange_timing_test {

using std::chrono::microseconds;
constexpr int64_t kMib = 1 << 20;

// Backward completes the last parameter first.
std::vector<GradientTime> gradients(int count, int64_t bytes, double seconds_each) {
  std::vector<GradientTime> all;
  for (int i = 0; i < count; ++i) all.push_back({bytes, seconds_each * (count - i)});
  return all;
}

TEST(BucketSize, PredictsTheSchedulersOrder) {
  const BucketOptions sizes{.first_bytes = 100, .bytes = 200};
  const std::vector<GradientTime> all =
      gradients(5, 100, 1);  // buckets: 1 parameter, then 2 and 2, ready at 1, 3 and 5
  // Only the last bucket is exposed: 5 + (0.25 + 2 · 0.5).
  EXPECT_DOUBLE_EQ(predicted_seconds(all, {0.25, 0.005}, true, sizes), 6.25);
  // The network is the bottleneck: 1 + three buckets + 5 · 2.
  EXPECT_DOUBLE_EQ(predicted_seconds(all, {0.25, 0.02}, true, sizes), 1 + 0.75 + 10);
  EXPECT_DOUBLE_EQ(predicted_seconds(all, {0.25, 0.005}, false, sizes), 5 + 0.75 + 2.5);
}

TEST(BucketSize, IsSmallWhereBackwardHidesTheRestAndLargeWhereABucketIsExpensive) {
  const std::vector<GradientTime> all = gradients(128, kMib, 0.01);
  EXPECT_EQ(best_bucket_size(all, {0, 0.005 / kMib}, true).mib, 1);
  EXPECT_EQ(best_bucket_size(all, {0.5, 0.005 / kMib}, true).mib, 64);
  EXPECT_EQ(best_bucket_size(all, {0.5, 0.005 / kMib}, false).mib, 64);
  const BucketSize between = best_bucket_size(all, {0.02, 0.005 / kMib}, true);
  EXPECT_EQ(between.mib, 4);  // 20 ms per bucket and 5 ms per MiB: with 8 MiB, more is left to exchange at the end
  EXPECT_THAT(between.reason, testing::HasSubstr("a bucket takes 20 ms and 5 ms per MiB, backward 1280 ms"));
  EXPECT_THAT(between.reason, testing::HasSubstr("with 25 MiB"));
  EXPECT_EQ(best_bucket_size(all, {1e-6, 1e-6 / kMib}, true).mib, 25) << "no size is 1 % better than the default";
}

TEST(BucketSize, WireIsTheFirstUnlessAnotherIsFivePercentShorter) {
  EXPECT_EQ(best_wire({{"f32", 1.0}, {"bf16", 0.96}}).index, 0u);
  EXPECT_EQ(best_wire({{"f32", 1.0}, {"bf16", 1.2}}).index, 0u);
  const BestWire best = best_wire({{"f32", 1.0}, {"bf16", 0.94}});
  EXPECT_EQ(best.index, 1u);
  EXPECT_EQ(best.reason, "from the beginning of the backward pass to the last update 940 ms, with f32 1000 ms");
}

// An exchange that takes 20 ms, and 10 ms for each MiB.
class Slow : public Exchange {
 public:
  void mean(Bucket& bucket, Communicator& comm, int64_t) override {
    comm.world->all_reduce(bucket.grad.range(0, 32), Reduce::mean, "slow");
    std::this_thread::sleep_for(microseconds(20000 + 10000 * bucket.param.bytes() / kMib));
  }
};

// Sleeps are longer on a busy machine, so some attempts may miss the tolerance.
TEST(BucketSize, MeasuresTheCostOfABucket) {
  double per_bucket = 0, per_mib = 0;
  for (int attempt = 0; attempt < 10; ++attempt) {
    run_local({2, 1}, [&](Communicator& comm) {
      comm.stats->add("training", 0, 5);
      DataParallelOptions options{.optimizer = Sgd::Options{}};
      options.make_exchange = [](const auto&...) { return std::make_unique<Slow>(); };
      const BucketCost cost = measure_bucket_cost(comm, options);
      EXPECT_EQ(comm.stats->phases().size(), 1u) << "the measurement is not counted";
      EXPECT_EQ(comm.stats->total().bytes_inter, 5);
      if (comm.rank == 0) per_bucket = 1e3 * cost.s_per_bucket, per_mib = 1e3 * cost.s_per_byte * kMib;
    });
    if (std::abs(per_bucket - 20) < 5 && std::abs(per_mib - 10) < 3) break;
  }
  EXPECT_NEAR(per_bucket, 20, 5);
  EXPECT_NEAR(per_mib, 10, 3);
}

// An exchange that takes 1 ms for each MiB.
class OneMillisecondPerMib : public Exchange {
 public:
  void mean(Bucket& bucket, Communicator&, int64_t) override {
    std::this_thread::sleep_for(microseconds(1000 * bucket.param.bytes() / kMib));
  }
};

// Restricts the calling thread, and the threads that it starts, to one core that spinning threads also use.
class BusyCore {
 public:
  explicit BusyCore(int spinning) {
    sched_getaffinity(0, sizeof(before_), &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core)
      if (CPU_ISSET(core, &before_)) CPU_SET(core, &one);
    sched_setaffinity(0, sizeof(one), &one);
    for (int i = 0; i < spinning; ++i)
      threads_.emplace_back([this] {
        while (!ends_) {
        }
      });
  }
  ~BusyCore() {
    ends_ = true;
    for (std::thread& thread : threads_) thread.join();
    sched_setaffinity(0, sizeof(before_), &before_);
  }
  BusyCore(const BusyCore&) = delete;
  BusyCore& operator=(const BusyCore&) = delete;

 private:
  cpu_set_t before_;
  std::atomic<bool> ends_ = false;
  std::vector<std::thread> threads_;
};

// The computing thread may have to wait for a core when the exchange begins, and continue when the exchange has ended.
TEST(BucketSize, MeasuresWholeExchangesOnABusyCore) {
  const BusyCore busy(8);
  for (int attempt = 0; attempt < 4; ++attempt)
    run_local({1, 1}, [](Communicator& comm) {
      DataParallelOptions options{.optimizer = Sgd::Options{}};
      options.make_exchange = [](const auto&...) { return std::make_unique<OneMillisecondPerMib>(); };
      const BucketCost cost = measure_bucket_cost(comm, options);
      EXPECT_GE(cost.s_per_bucket + 8 * kMib * cost.s_per_byte, 0.008);
    });
}

TEST(BucketSize, MeasuresTheGradientTimesOfBackward) {
  std::vector<GradientTime> times;
  bool fits = false;
  for (int attempt = 0; attempt < 10 && !fits; ++attempt) {
    run_local({2, 1}, [&](Communicator& comm) {
      const Var a(Tensor::full({4}, 1), true), b(Tensor::full({6}, 1), true), unused(Tensor::full({2}, 1), true);
      const auto slow = [](const Var& x, const Var& w, int ms) {
        return Var::result(x.value(), {x, w}, [dx = x.gradient(), dw = w.gradient(), w, ms](const Tensor& dy) {
          std::this_thread::sleep_for(std::chrono::milliseconds(ms));
          if (dx) dx.add(dy);
          dw.add(w.value());
        });
      };
      int passes = 0;
      const auto found = measure_gradient_times({{"a", a}, {"b", b}, {"tied", a}, {"unused", unused}}, comm, [&] {
        ++passes;
        return slow(slow(Var(Tensor::full({1}, 1)), a, 20), b, 10);
      });
      EXPECT_EQ(passes, 2) << "the first one is slower";
      EXPECT_FALSE(a.has_grad());
      EXPECT_TRUE(comm.stats->phases().empty()) << "the measurement is not counted";
      if (comm.rank == 0) times = found;
    });
    ASSERT_EQ(times.size(), 3u) << "tied parameters once";
    fits = times[0].ready_s < 0.035 && times[1].ready_s < 0.015;
  }
  EXPECT_EQ(times[0].bytes, 16);
  EXPECT_TRUE(fits) << times[0].ready_s << " and " << times[1].ready_s;
  EXPECT_GE(times[0].ready_s, 0.030);
  EXPECT_GE(times[1].ready_s, 0.010);
  EXPECT_GE(times[2].ready_s, times[0].ready_s) << "the end of backward";
}

// Scratch parameters support names, sharded state, and methods that communicate themselves.
TEST(BucketSize, MeasuresEveryKindOfMethod) {
  for (const char* exchange : {"dense", "loco", "powersgd"})
    run_local({2, 1}, [&](Communicator& comm) {
      DataParallelOptions options{.optimizer = "adamw", .exchange = exchange};
      if (options.exchange.name() != "powersgd") options.exchange.sharding = Sharding::zero2;
      options.clip_norm = 1;
      const BucketCost cost = measure_bucket_cost(comm, options);
      EXPECT_GT(cost.s_per_bucket + cost.s_per_byte, 0) << exchange;
    });
  // Limits that a model's gradients and parameters do not exceed.
  ExchangeConfig loco = "loco", qsgd = "qsgd";
  loco.set("scale", 1 << 19);
  qsgd.set("levels", 127).set("block_size", 0).set("error_feedback", "worker");
  for (const ExchangeConfig& exchange : {loco, qsgd})
    run_local({2, 1}, [&](Communicator& comm) {
      const BucketCost cost = measure_bucket_cost(comm, {.optimizer = "sgdm", .exchange = exchange});
      EXPECT_GT(cost.s_per_bucket + cost.s_per_byte, 0) << exchange.name();
    });
  run_local({2, 2}, [](Communicator& comm) {
    OptimizerConfig birder = "birder";
    birder.set("frozen", "a name of the model");
    const BucketCost cost = measure_bucket_cost(comm, {.optimizer = birder});
    EXPECT_GT(cost.s_per_bucket + cost.s_per_byte, 0);
  });
}

}  // namespace exchange_timing_test
}  // namespace godwit
