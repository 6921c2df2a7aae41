#include "comm/buckets/scheduler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "comm/exchange/method.h"
#include "comm/transport/local.h"
#include "engine/context.h"
#include "tests/autograd/dot.h"
#include "tests/comm/waiting_groups.h"

namespace godwit {
namespace scheduler_test {

using test::dot;

Var add(const Var& a, const Var& b) {
  return Var::result(Tensor::full({1}, a.value().item() + b.value().item()), {a, b},
                     [da = a.gradient(), db = b.gradient()](const Tensor& dy) {
                       if (da) da.add(dy);
                       if (db) db.add(dy);
                     });
}

Var leaf(int64_t n, double value = 1) { return Var(Tensor::full({n}, value), true); }

// Three parameters a, b, c of 4, 3 and 2 elements. The buckets contain c, b and a.
struct Model {
  Var a = leaf(4), b = leaf(3), c = leaf(2);
  Buckets buckets{{{"a", a, true}, {"b", b, true}, {"c", c, true}}, {.first_bytes = 1, .bytes = 1, .alignment = 4}};
};

// The parameters in the order of forward; backward visits them from the last to the first.
struct Use {
  Var w;
  double x;
  std::function<void()> before = {};
};

Var loss_of(const std::vector<Use>& uses) {
  Var loss;
  for (const Use& use : uses) {
    const Var term = dot(use.w, use.x, use.before);
    loss = loss.defined() ? add(loss, term) : term;
  }
  return loss;
}

struct Log {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int> done;

  void push(int bucket) {
    {
      std::lock_guard lock(mutex);
      done.push_back(bucket);
    }
    changed.notify_all();
  }
  void wait_for(size_t count) {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(5), [&] { return done.size() >= count; }));
  }
};

TEST(Scheduler, LaunchesBucketsWhileBackwardRuns) {
  Model model;
  Log log;
  Scheduler scheduler(model.buckets, [&](Bucket& bucket) { log.push(bucket.index); });
  for (int step = 0; step < 3; ++step) {
    log.done.clear();
    scheduler.begin_step();
    // Backward runs c, b, a. The backward of a blocks until two buckets are done.
    backward(loss_of({{model.a, 2, [&] { log.wait_for(2); }}, {model.b, 3}, {model.c, 5}}));
    scheduler.finish_step();
    EXPECT_EQ(log.done, (std::vector<int>{0, 1, 2}));
    EXPECT_EQ(scheduler.overlapped(), 3);
    EXPECT_TRUE(scheduler.unused().empty());
    EXPECT_EQ(model.a.grad().item(3), 2);
    EXPECT_EQ(model.c.grad().item(1), 5) << "gradients must be cleared between steps";
  }
}

TEST(Scheduler, KeepsPlanOrderWhenLaterBucketsFillFirst) {
  Model model;
  Log log;
  Scheduler scheduler(model.buckets, [&](Bucket& bucket) { log.push(bucket.index); });
  scheduler.begin_step();
  backward(loss_of({{model.c, 1}, {model.b, 1}, {model.a, 1}}));  // the gradient of a arrives first, that of c last
  scheduler.finish_step();
  EXPECT_EQ(log.done, (std::vector<int>{0, 1, 2}));
}

TEST(Scheduler, UnusedParametersGetAZeroGradient) {
  Model model;
  Log log;
  Scheduler scheduler(model.buckets, [&](Bucket& bucket) { log.push(bucket.index); });
  for (int step = 0; step < 2; ++step) {
    log.done.clear();
    for (Bucket& bucket : model.buckets) bucket.grad.range(0, bucket.numel).fill(9);  // left over from an earlier step
    scheduler.begin_step();
    backward(loss_of({{model.a, 7}, {model.c, 4}}));
    scheduler.finish_step();
    EXPECT_EQ(scheduler.unused(), (std::vector<std::string>{"b"}));
    EXPECT_EQ(log.done, (std::vector<int>{0, 1, 2}));
    EXPECT_EQ(scheduler.overlapped(), 1) << "the bucket of a waits for that of b";
    EXPECT_EQ(model.b.grad().to_vector<float>(), std::vector<float>(3, 0.0f));
    EXPECT_EQ(model.a.grad().item(0), 7);
  }
  scheduler.begin_step();
  scheduler.finish_step();  // a step without backward
  EXPECT_EQ(scheduler.unused(), (std::vector<std::string>{"c", "b", "a"}));
  EXPECT_EQ(model.a.grad().item(0), 0);
}

// A forward pass has taken the gradient memory of a parameter that the next step does not use.
TEST(Scheduler, AStepWithoutAParameterKeepsItsEarlyGradient) {
  Model model;
  Scheduler scheduler(model.buckets, [](Bucket&) {});
  const EarlyGradient early(model.a.gradient());
  early.memory().fill(3);
  const Var later = Var::result(Tensor::full({1}, 0), {model.a}, [early](const Tensor&) { early.add(); });
  for (const auto& [loss, gradient] : {std::pair(dot(model.b, 2), 0.0), {later, 3.0}}) {
    scheduler.begin_step();
    scheduler.backward(loss);
    scheduler.finish_step();
    EXPECT_EQ(model.a.grad().item(3), gradient);
  }
}

TEST(Scheduler, TiedParameterCountsOnce) {
  Var w = leaf(4);
  Buckets buckets({{"in", w, true}, {"out", w, true}}, {.alignment = 4});
  int runs = 0;
  Scheduler scheduler(buckets, [&](Bucket&) { ++runs; });
  scheduler.begin_step();
  backward(loss_of({{w, 2}, {w, 3}}));
  scheduler.finish_step();
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(w.grad().item(), 5);
}

TEST(Scheduler, AnExceptionInWorkIsRethrownOnTheRanksThread) {
  Model model;
  Scheduler scheduler(model.buckets, [&](Bucket& bucket) {
    if (bucket.index == 1) fail("exchange: broken");
  });
  const auto step = [&] {
    scheduler.begin_step();
    backward(loss_of({{model.a, 1}, {model.b, 1}, {model.c, 1}}));
    scheduler.finish_step();
  };
  try {
    step();
    ADD_FAILURE() << "no Error was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "exchange: broken (bucket 1)");
  }
  EXPECT_THROW(scheduler.wait(), Error);
  EXPECT_THROW(step(), Error) << "a failed scheduler stays failed";
}

TEST(Scheduler, RemovesItsHooksIfBackwardThrows) {
  Model model;
  Log log;
  EXPECT_THROW(
      {
        Scheduler scheduler(model.buckets, [&](Bucket& bucket) { log.push(bucket.index); });
        scheduler.begin_step();
        backward(loss_of({{model.a, 1, [] { fail("out of memory"); }}, {model.c, 1}}));
        scheduler.finish_step();
      },
      Error);
  EXPECT_EQ(log.done, (std::vector<int>{0})) << "launched buckets must be finished";
  backward(loss_of({{model.a, 1}, {model.c, 1}}));  // would call a dangling hook
  Scheduler again(model.buckets, [&](Bucket& bucket) { log.push(bucket.index); });
  again.begin_step();
  backward(dot(model.a, 6));
  again.finish_step();
  EXPECT_EQ(log.done, (std::vector<int>{0, 0, 1, 2}));
  EXPECT_EQ(model.a.grad().item(), 6);
}

TEST(Scheduler, HooksAreIgnoredOutsideOfSteps) {
  Model model;
  int runs = 0;
  Scheduler scheduler(model.buckets, [&](Bucket&) { ++runs; });
  backward(dot(model.c, 1));
  scheduler.wait();
  EXPECT_EQ(runs, 0);
}

TEST(Scheduler, RefusesAWrongOrderOfCalls) {
  Model model;
  EXPECT_THROW(Scheduler(model.buckets, nullptr), Error);
  Scheduler scheduler(model.buckets, [](Bucket&) {});
  EXPECT_THROW(scheduler.finish_step(), Error);
  scheduler.begin_step();
  EXPECT_THROW(scheduler.begin_step(), Error);
  backward(dot(model.c, 1));
  EXPECT_THROW(backward(dot(model.c, 1)), Error) << "two gradients in one step";
}

TEST(Scheduler, AccumulatesMicroBatchesAndLaunchesInTheLast) {
  Model model;
  Log log;
  Scheduler scheduler(model.buckets, [&](Bucket& bucket) { log.push(bucket.index); });
  for (int step = 0; step < 3; ++step) {
    log.done.clear();
    for (Bucket& bucket : model.buckets) bucket.grad.range(0, bucket.numel).fill(9);  // left over from an earlier step
    scheduler.begin_step(4);
    for (int i = 0; i < 3; ++i) {
      scheduler.backward(loss_of({{model.a, 4.0 * i}, {model.b, 8}, {model.c, 12}}));
      scheduler.wait();
      ASSERT_TRUE(log.done.empty()) << "micro-batch " << i << " of 4 launched a bucket";
    }
    scheduler.backward(loss_of({{model.a, 4, [&] { log.wait_for(2); }}, {model.b, 8}, {model.c, 12}}));
    scheduler.finish_step();
    EXPECT_EQ(log.done, (std::vector<int>{0, 1, 2}));
    EXPECT_EQ(scheduler.overlapped(), 3);
    EXPECT_TRUE(scheduler.unused().empty());
    EXPECT_EQ(model.a.grad().to_vector<float>(), std::vector<float>(4, 4.0f)) << "the mean of 0, 4, 8 and 4";
    EXPECT_EQ(model.b.grad().item(2), 8);
    EXPECT_EQ(model.c.grad().item(1), 12);
  }
}

// b is used in the first micro-batch only, a in the last only, c never.
TEST(Scheduler, KeepsTheSumOfParametersUnusedInTheLastMicroBatch) {
  Model model;
  Log log;
  Scheduler scheduler(model.buckets, [&](Bucket& bucket) { log.push(bucket.index); });
  for (Bucket& bucket : model.buckets) bucket.grad.range(0, bucket.numel).fill(9);
  scheduler.begin_step(2);
  scheduler.backward(dot(model.b, 6));
  scheduler.backward(dot(model.a, 10));
  scheduler.finish_step();
  EXPECT_EQ(log.done, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(scheduler.unused(), (std::vector<std::string>{"c"}));
  EXPECT_EQ(model.a.grad().item(3), 5);
  EXPECT_EQ(model.b.grad().item(2), 3);
  EXPECT_EQ(model.c.grad().item(1), 0);
}

TEST(Scheduler, RefusesAWrongNumberOfMicroBatches) {
  Model model;
  Scheduler scheduler(model.buckets, [](Bucket&) {});
  EXPECT_THROW(scheduler.begin_step(0), Error);
  EXPECT_THROW(scheduler.backward(dot(model.c, 1)), Error) << "outside a step";
  scheduler.begin_step(2);
  scheduler.backward(dot(model.c, 1));
  try {
    scheduler.finish_step();
    ADD_FAILURE() << "no Error was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "scheduler: finish_step() after 1 of 2 micro-batches");
  }
  scheduler.backward(dot(model.c, 1));
  EXPECT_THROW(scheduler.backward(dot(model.c, 1)), Error) << "a third micro-batch in a step of two";
  scheduler.finish_step();
  EXPECT_EQ(model.c.grad().item(0), 1);
}

TEST(Scheduler, BytesOfAStepDoNotDependOnMicroBatches) {
  run_local({2, 2}, [](Communicator& comm) {
    Model model;
    auto exchange = make_exchange("dense", model.buckets, comm, 1);
    Scheduler scheduler(model.buckets, [&](Bucket& bucket) { exchange->mean(bucket, comm, 1); });
    CommCount one;
    for (const int k : {1, 2, 5}) {
      comm.stats->reset();
      scheduler.begin_step(k);
      for (int i = 0; i < k; ++i) scheduler.backward(loss_of({{model.a, 1.0 * comm.rank}, {model.b, 1}, {model.c, 1}}));
      scheduler.finish_step();
      const CommCount count = comm.stats->total();
      if (k == 1) one = count;
      EXPECT_EQ(count.calls, 3) << "one exchange per bucket";
      EXPECT_EQ(count.bytes_inter, one.bytes_inter);
      EXPECT_EQ(count.bytes_intra, one.bytes_intra);
      EXPECT_NEAR(model.a.grad().item(0), 1.5, 1e-6);
    }
  });
}

// Four ranks exchange and update concurrently with backward. All must end with the parameters of plain gradient
// descent.
TEST(Scheduler, TrainsReplicasSynchronously) {
  run_local({2, 2}, [](Communicator& comm) {
    Model model;
    auto exchange = make_exchange("dense", model.buckets, comm, 1);
    Scheduler scheduler(model.buckets, [&](Bucket& bucket) {
      EXPECT_EQ(context().rank, comm.rank) << "the stream must have its rank's context";
      exchange->mean(bucket, comm, 1);
      for (int64_t i = 0; i < bucket.numel; ++i) bucket.param.data<float>()[i] -= 0.125f * bucket.grad.data<float>()[i];
    });
    for (int step = 0; step < 50; ++step) {
      scheduler.begin_step();
      backward(loss_of({{model.a, 1.0 * comm.rank}, {model.b, 1.0 * step}, {model.c, 1}}));
      scheduler.finish_step();
    }
    EXPECT_EQ(model.a.value().item(3), 1 - 0.125 * 50 * 1.5);
    EXPECT_EQ(model.b.value().item(2), 1 - 0.125 * 49 * 25);
    EXPECT_EQ(model.c.value().item(1), 1 - 0.125 * 50);
  });
}

// NCCL kernels wait on the GPU for other ranks, and loading a kernel waits for running kernels. The first step loads
// kernels, so no rank may communicate before all ranks have finished backward.
TEST(Scheduler, CommunicatesAfterTheFirstBackwardIfKernelsWait) {
  std::atomic<int> ended{0};
  run_local({3, 1}, [&](Communicator& host) {
    Communicator comm = test::with_waiting_groups(host, std::make_shared<test::CallLog>());
    Model model;
    Log log;
    auto exchange = make_exchange("dense", model.buckets, comm, 1);
    Scheduler scheduler(
        model.buckets,
        [&](Bucket& bucket) {
          EXPECT_EQ(ended, 3) << "a rank is still in its first backward";
          exchange->mean(bucket, comm, 1);
          log.push(bucket.index);
        },
        &comm);
    for (int step = 0; step < 3; ++step) {
      log.done.clear();
      scheduler.begin_step();
      const auto middle = [&] {
        if (step == 0) std::this_thread::sleep_for(std::chrono::milliseconds(30 * comm.rank));
        else log.wait_for(2);
      };
      backward(loss_of({{model.a, 1, middle}, {model.b, 1}, {model.c, 1}}));
      if (step == 0) ++ended;
      scheduler.finish_step();
      EXPECT_EQ(scheduler.overlapped(), step == 0 ? 0 : 3);
      EXPECT_EQ(log.done, (std::vector<int>{0, 1, 2}));
      EXPECT_EQ(model.a.grad().item(0), 1);
    }
  });
}

// The computing thread communicates in forward and backward, as synchronized batch norm does.
TEST(Scheduler, SerializesTheComputingThreadsCallsIfKernelsWait) {
  constexpr int kRanks = 3;
  std::vector<std::shared_ptr<test::CallLog>> logs(kRanks);
  run_local({kRanks, 1}, [&](Communicator& host) {
    auto& log = logs[static_cast<size_t>(host.rank)] = std::make_shared<test::CallLog>();
    Communicator comm = test::with_waiting_groups(host, log);
    Model model;
    auto exchange = make_exchange("dense", model.buckets, comm, 1);
    Scheduler scheduler(
        model.buckets, [&](Bucket& bucket) { exchange->mean(bucket, comm, 1); }, &comm);
    const auto gather = [&] {
      const Tensor all({kRanks});
      comm.compute->all_gather(Tensor::full({1}, 1), all, "batch_norm");
    };
    for (int step = 0; step < 4; ++step) {
      scheduler.begin_step();
      gather();
      backward(loss_of({{model.a, 1.0 * comm.rank, gather}, {model.b, 1, gather}, {model.c, 1}}));
      scheduler.finish_step();
      EXPECT_EQ(model.a.grad().item(0), 1);
    }
  });
  for (const auto& log : logs) {
    EXPECT_FALSE(log->concurrent) << "two threads of a rank communicated concurrently";
    EXPECT_EQ(log->phases, logs[0]->phases) << "all ranks must have the same order of calls";
    EXPECT_EQ(log->phases.size(), 4 * 6);
  }
}

// On-demand gradients have memory for three buckets; backward waits for each exchange.
TEST(Scheduler, ExchangesOnDemandGradientsOneByOneIfKernelsWait) {
  run_local({2, 1}, [](Communicator& host) {
    const auto calls = std::make_shared<test::CallLog>();
    Communicator comm = test::with_waiting_groups(host, calls);
    Var a = leaf(4), b = leaf(3), c = leaf(2);
    Buckets buckets({{"a", a, true}, {"b", b, true}, {"c", c, true}},
                    {.first_bytes = 1, .bytes = 1, .alignment = 4, .on_demand_gradients = true});
    Scheduler scheduler(
        buckets,
        [&](Bucket& bucket) {
          comm.world->all_reduce(bucket.grad, Reduce::sum, "exchange");
          buckets.release_gradient(bucket);
        },
        &comm);
    scheduler.begin_step();
    const auto expect_calls = [&](size_t count) {
      return [&, count] {
        EXPECT_FALSE(calls->in_flight);
        std::lock_guard lock(calls->mutex);
        EXPECT_EQ(calls->phases.size(), count);
      };
    };
    backward(loss_of({{a, 1, expect_calls(2)}, {b, 1, expect_calls(1)}, {c, 1, expect_calls(0)}}));
    scheduler.finish_step();
    EXPECT_EQ(scheduler.overlapped(), 0);
    EXPECT_EQ(calls->phases.size(), 3);
    EXPECT_FALSE(calls->concurrent);
  });
}

// One rank fails in forward or during backward, while the streams of the others wait for it.
TEST(Scheduler, AFailingRankEndsTheOthersSteps) {
  for (bool in_forward : {true, false})
    for (int failing : {0, 2}) {
      try {
        run_local({3, 1},
                  [&](Communicator& comm) {
                    Model model;
                    auto exchange = make_exchange("dense", model.buckets, comm, 1);
                    Scheduler scheduler(model.buckets, [&](Bucket& bucket) { exchange->mean(bucket, comm, 1); });
                    for (int step = 0; step < 10; ++step) {
                      const bool fails = comm.rank == failing && step == 5;
                      scheduler.begin_step();
                      if (fails && in_forward) fail("forward: bad label");
                      auto middle = [&] { check(!fails, "backward: broken"); };
                      backward(loss_of({{model.a, 1}, {model.b, 1, middle}, {model.c, 1}}));
                      scheduler.finish_step();
                    }
                  },
                  {.timeout = std::chrono::milliseconds(20'000)});
        ADD_FAILURE() << "no Error was thrown";
      } catch (const Error& error) {
        EXPECT_EQ(error.what(),
                  "rank " + std::to_string(failing) + (in_forward ? ": forward: bad label" : ": backward: broken"));
      }
    }
}

}  // namespace scheduler_test
}  // namespace godwit
