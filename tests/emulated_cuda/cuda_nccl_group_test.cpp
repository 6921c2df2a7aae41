// Collectives of NCCL groups are queued on streams. No host thread waits for them, and a watchdog ends failed
// collectives.
#include <gmock/gmock.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "autograd/ops/linear.h"
#include "comm/buckets/scheduler.h"
#include "comm/transport/local.h"
#include "engine/host_reads.h"
#include "tests/emulated_cuda/cuda_runtime.h"
#include "tests/emulated_cuda/nccl.h"
#include "tests/optim/methods.h"
#include "tests/optim/parameter_reads_checks.h"

namespace godwit {
namespace cuda_nccl_group_test {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

const Placement kNccl{"cuda", /*share_gpu=*/false, /*nccl=*/true, /*nccl_between_threads=*/true};
constexpr milliseconds kLong{60'000}, kShort{300};  // timeouts: longer than any test, and short enough to expire

// Two ranks of this process. The parameter is the seed of deferred streams, or 0.
class CudaNcclGroup : public ::testing::TestWithParam<int> {
 protected:
  CudaNcclGroup() {
    if (before_) previous_ = before_;
    setenv("GODWIT_EMULATED_STREAMS", std::to_string(GetParam()).c_str(), 1);
  }
  ~CudaNcclGroup() override {
    emulated_nccl::async_error = ncclSuccess;
    emulated_nccl::async_error_text = "an error of the test";
    if (before_) setenv("GODWIT_EMULATED_STREAMS", previous_.c_str(), 1);
    else unsetenv("GODWIT_EMULATED_STREAMS");
  }

  // Calls body(communicator, x) after a first all-reduce of x in the phase "sum", which has ended on both ranks.
  template <class F>
  static void run(const F& body, milliseconds timeout = kLong) {
    run_local({2, 1},
              [&](Communicator& comm) {
                const Tensor x = Tensor::full({8}, comm.rank + 1);
                comm.world->all_reduce(x, Reduce::sum, "sum");
                comm.world->barrier("begin");
                body(comm, x);
              },
              {.timeout = timeout, .threads_per_rank = 1, .placement = kNccl});
  }
  static void sum(const Communicator& comm, const Tensor& x) { comm.world->all_reduce(x, Reduce::sum, "sum"); }
  static void wait_for(const std::atomic<bool>& flag) {
    const auto limit = Clock::now() + std::chrono::seconds(20);
    while (!flag && Clock::now() < limit) std::this_thread::sleep_for(milliseconds(1));
    EXPECT_TRUE(flag);
  }

 private:
  const char* const before_ = std::getenv("GODWIT_EMULATED_STREAMS");
  std::string previous_;
};
INSTANTIATE_TEST_SUITE_P(Streams, CudaNcclGroup, ::testing::Values(0, 3, 4));

// With NCCL, an allocation of one thread could wait for a collective that waits for this thread.
TEST(CudaNccl, ThreadsUseItOnlyWithoutPeerAccess) {
  const auto uses_nccl = [] {
    std::atomic<bool> found = false;
    run_local({2, 1}, [&](Communicator& comm) { found = comm.world->collectives_are_kernels(); },
              {.threads_per_rank = 1, .placement = {"cuda"}});
    return found.load();
  };
  EXPECT_FALSE(uses_nccl());
  emulated::peers = false;
  EXPECT_TRUE(uses_nccl());
  emulated::peers = true;
}

TEST_P(CudaNcclGroup, ACollectiveReturnsBeforeItsPeersJoin) {
  std::atomic<bool> returned = false;
  run([&](Communicator& comm, const Tensor& x) {
    if (comm.rank == 1) wait_for(returned);
    sum(comm, x);
    returned = true;
    EXPECT_EQ(x.item(7), 6) << "3 of each rank";
  });
}

// The first collective of a phase has ended when its call returns: kernels after it may have to be loaded.
TEST_P(CudaNcclGroup, TheFirstCollectiveOfAPhaseWaits) {
  std::atomic<bool> came = false;
  run([&](Communicator& comm, const Tensor& x) {
    if (comm.rank == 1) std::this_thread::sleep_for(milliseconds(50)), came = true;
    comm.world->all_reduce(x, Reduce::sum, "another");
    EXPECT_TRUE(came);
  });
}

TEST_P(CudaNcclGroup, TrainingHasTheBitsOfPeerMemory) {
  for (const char* const optimizer : {"birder", "adamw", "one_bit_adam"})
    for (const char* const sharding : {"none", "zero2", "zero3"}) {
      test::MethodPlan plan{.optimizer = optimizer, .topology = {2, 1}};
      if (std::string(optimizer) == "adamw") plan.sharding = sharding;
      plan.placement = {"cuda", false, /*nccl=*/false};
      const test::MethodOutcome expected = train_by(plan);
      plan.placement = kNccl;
      const test::MethodOutcome outcome = train_by(plan);
      EXPECT_TRUE(outcome.same(expected)) << optimizer;
      EXPECT_EQ(outcome.x, expected.x) << optimizer;
    }
}

// The ranks gather parameters in steps and in evaluations, whose number differs between the ranks.
TEST_P(CudaNcclGroup, TrainingWithShardedParametersHasTheBitsOfPeerMemory) {
  for (const char* const sharding : {"zero3", "hybrid"}) {
    test::NetPlan plan{.exchange = test::sharded("dense", sharding), .topology = {1, 2}};
    plan.placement = {"cuda", false, /*nccl=*/false};
    const test::NetRun expected = train(plan);
    test::ReadPlan reads{plan.exchange, plan.topology, test::kBucket, /*tied=*/false, plan.placement};
    const std::vector<test::EvaluatedRank> evaluated = evaluate_unevenly(reads);
    plan.placement = reads.placement = kNccl;
    const test::NetRun run = train(plan);
    EXPECT_EQ(run.losses, expected.losses);
    EXPECT_EQ(run.x, expected.x);
    const std::vector<test::EvaluatedRank> ranks = evaluate_unevenly(reads);
    for (size_t r = 0; r < 2; ++r) EXPECT_EQ(ranks[r].losses, evaluated[r].losses);
  }
}

// Every wait of the host throws, and values after the collective are not read.
TEST_P(CudaNcclGroup, AnAbsentPeerEndsTheRunAtTheTimeout) {
  std::atomic<bool> ended = false;
  run(
      [&](Communicator& comm, const Tensor& x) {
        if (comm.rank == 1) return wait_for(ended);
        bool read = false;
        {
          HostReads reads;
          const auto begin = Clock::now();
          sum(comm, x);
          reads.add(x, [&](const Tensor&) { read = true; });
          const std::string error =
              "rank 0: phase 'sum': timeout: NCCL did not finish within 0.3 s; a peer is missing, or its GPU or link "
              "hangs";
          EXPECT_EQ(error_of([&] { reads.run(); }), error);
          EXPECT_GE(Clock::now() - begin, kShort);
          EXPECT_EQ(error_of([&] { x.item(0); }), error);
          EXPECT_EQ(error_of([] { synchronize(); }), error);
          EXPECT_EQ(error_of([&] { sum(comm, x); }), error);
          EXPECT_EQ(error_of([&] { comm.intra->all_reduce(x, Reduce::sum, "intra"); }), error);
          EXPECT_EQ(error_of([&] { comm.world->check_failure("test"); }), error);
        }
        EXPECT_FALSE(read);
        ended = true;
      },
      kShort);
}

// The functions that evaluation and saving call read neither the step's checks nor its parameters.
TEST_P(CudaNcclGroup, AReplicaDoesNotUseAStepWhosePeerDidNotCome) {
  std::atomic<bool> ended = false;
  run(
      [&](Communicator& comm, const Tensor&) {
        const Var w(Tensor::full({8, 8}, 0.25), true);
        DataParallel replica({{"w", w, true}}, comm, {.optimizer = "sgdm"});
        const auto step = [&] {
          replica.step(Var::result(Tensor::full({1}, 0), {w},
                                   [dw = w.gradient()](const Tensor&) { dw.add(Tensor::full({8, 8}, 1)); }));
        };
        step(), step();
        replica.value_hash();
        if (comm.rank == 1) return wait_for(ended);
        step();
        const std::string error = error_of([&] { replica.finish_checks(); });
        EXPECT_THAT(error, HasSubstr("timeout: NCCL did not finish within 0.3 s"));
        EXPECT_EQ(error_of([&] { replica.value_hash(); }), error);
        EXPECT_EQ(error_of([&] { replica.with_master_weights([&] { w.value().to(kCpu); }); }), error);
        EXPECT_EQ(error_of([&] { step(), replica.finish_checks(); }).substr(0, error.size()), error);
        EXPECT_EQ(error_of([&] { replica.find_cause(); }), error);
        ended = true;
      },
      kShort);
}

TEST_P(CudaNcclGroup, ABusyRankPostponesTheTimeout) {
  run(
      [&](Communicator& comm, const Tensor& x) {
        if (comm.rank == 1) {
          const auto busy = comm.world->control()->busy();
          std::this_thread::sleep_for(2 * kShort);
        }
        sum(comm, x);
        EXPECT_EQ(x.item(0), 6);
      },
      kShort);
}

TEST_P(CudaNcclGroup, TheTimeoutOfACollectiveBeginsAfterEarlierCollectives) {
  run(
      [&](Communicator& comm, const Tensor& x) {
        for (int call = 0; call < 2; ++call) {
          if (comm.rank == 1) std::this_thread::sleep_for(milliseconds(600));
          sum(comm, x);
        }
        EXPECT_EQ(x.item(0), 12);
      },
      milliseconds(1000));
}

TEST_P(CudaNcclGroup, AnErrorOfACommunicatorIsReportedWithItsPhase) {
  std::atomic<bool> ended = false;
  run([&](Communicator& comm, const Tensor& x) {
    if (comm.rank == 1) return wait_for(ended);
    sum(comm, x);
    emulated_nccl::async_error = ncclRemoteError;
    EXPECT_EQ(error_of([] { synchronize(); }),
              "rank 0: phase 'sum': NCCL: remote process exited or there was a network error (an error of the test); "
              "set NCCL_DEBUG=INFO for details");
    ended = true;
  });
}

TEST_P(CudaNcclGroup, AnErrorOfMissingMemoryStatesFreeMemoryAndARemedy) {
  std::atomic<bool> ended = false;
  run([&](Communicator& comm, const Tensor& x) {
    if (comm.rank == 1) return wait_for(ended);
    sum(comm, x);
    emulated_nccl::async_error_text = "Cuda failure 2 'out of memory'";
    emulated_nccl::async_error = ncclUnhandledCudaError;
    EXPECT_THAT(
        error_of([] { synchronize(); }),
        ::testing::ContainsRegex("Cuda failure 2 'out of memory'\\); [0-9]+ bytes of [0-9]+ are free on cuda:0; "
                                 "lower --batch or the number of ranks on this GPU"));
    ended = true;
  });
}

TEST_P(CudaNcclGroup, AFailedPeerEndsTheWaitOfAStream) {
  const auto begin = Clock::now();
  EXPECT_EQ(error_of([&] {
              run([&](Communicator& comm, const Tensor& x) {
                if (comm.rank == 1) fail("the test");
                sum(comm, x);
                EXPECT_THAT(error_of([&] { x.item(0); }), HasSubstr("phase 'sum': rank 1 failed: the test"));
                x.item(0);
              });
            }),
            "rank 1: the test");
  EXPECT_LT(Clock::now() - begin, kLong / 2);
}

TEST_P(CudaNcclGroup, AnErrorOfTheStreamsThreadComesFromItsWait) {
  std::atomic<bool> ended = false;
  run(
      [&](Communicator& comm, const Tensor& x) {
        if (comm.rank == 1) return wait_for(ended);
        Stream stream;
        stream.submit([&] { sum(comm, x), sum(comm, x); });
        EXPECT_THAT(error_of([&] { stream.synchronize(); }), HasSubstr("phase 'sum': timeout: "));
        ended = true;
      },
      kShort);
}

TEST_P(CudaNcclGroup, GroupsWaitForPendingWorkWhenTheyAreDestroyed) {
  const auto begin = Clock::now();
  std::atomic<int> pending = 0;
  run([&](Communicator& comm, const Tensor& x) {
    if (comm.rank == 1) std::this_thread::sleep_for(milliseconds(50));
    sum(comm, x);
    ++pending;
  });
  EXPECT_EQ(pending, 2);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
}

TEST_P(CudaNcclGroup, AFailedRankAbandonsPendingWork) {
  const auto begin = Clock::now();
  EXPECT_EQ(error_of([&] {
              run([&](Communicator& comm, const Tensor& x) {
                if (comm.rank == 1) return comm.world->barrier("test");
                sum(comm, x);
                fail("the test");
              });
            }),
            "rank 0: the test");
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
}

TEST_P(CudaNcclGroup, TimesAreMeasuredOnTheGpu) {
  std::atomic<bool> queued = false;
  run([&](Communicator& comm, const Tensor& x) {
    const auto wait_for_time = [&](double before) {
      const auto limit = Clock::now() + std::chrono::seconds(20);
      while (comm.world->seconds() <= before && Clock::now() < limit) std::this_thread::yield();
    };
    wait_for_time(0);  // of the first call
    const double first = comm.world->seconds();
    if (comm.rank == 1) wait_for(queued), std::this_thread::sleep_for(milliseconds(100));
    sum(comm, x);
    queued = true;
    synchronize();
    wait_for_time(first);
    EXPECT_GT(comm.world->seconds(), first);
    EXPECT_NEAR(comm.world->seconds(), comm.stats->phase("sum").seconds, 1e-9);
    if (comm.rank == 0 && GetParam() == 0) {  // deferred work begins late
      EXPECT_GE(comm.world->seconds() - first, 0.1);
    }
  });
}

// Loading a kernel waits for running collectives. A thread therefore waits for them before work of a new shape.
TEST_P(CudaNcclGroup, NewShapesWaitForTheCollectivesOfTheStepBefore) {
  std::atomic<bool> finished = false, came = false;
  run([&](Communicator& comm, const Tensor&) {
    const Var w(Tensor::full({8, 8}, 0.25), true);
    Buckets buckets({{"w", w, true}}, {.first_bytes = 1, .bytes = 1, .alignment = 4});
    Scheduler scheduler(
        buckets,
        [&](Bucket& bucket) {
          if (comm.rank == 1 && finished) std::this_thread::sleep_for(milliseconds(100)), came = true;
          comm.world->all_reduce(bucket.grad, Reduce::mean, "mean");
        },
        &comm);
    const auto loss = [&](int64_t batch) {
      const Var y = ops::linear(Var(Tensor::full({batch, 8}, 1)), w);
      return Var::result(Tensor::full({1}, 0), {y},
                         [dy = y.gradient(), batch](const Tensor&) { dy.add(Tensor::full({batch, 8}, 1)); });
    };
    for (int step = 0; step < 3; ++step) {
      if (step == 2 && comm.rank == 1) wait_for(finished);
      scheduler.begin_step();
      scheduler.backward(loss(4));
      scheduler.finish_step();
    }
    if (comm.rank == 1) return;
    EXPECT_FALSE(came) << "no host waits at the end of a step";
    finished = true;
    loss(5);
    EXPECT_TRUE(came);
  });
}

}  // namespace cuda_nccl_group_test
}  // namespace godwit
