#include "comm/transport/local.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>

#include "engine/context.h"
#include "engine/philox.h"
#include "tests/comm/suspension.h"
#include "tests/support.h"

namespace godwit {
namespace local_test {

TEST(Local, BarrierWaitsForAllRanks) {
  std::atomic<int> arrived{0};
  run_local({6, 1}, [&](Communicator& comm) {
    for (int round = 1; round <= 20; ++round) {
      if (comm.rank == round % 6) std::this_thread::yield();
      ++arrived;
      comm.world->barrier("test");
      EXPECT_GE(arrived.load(), 6 * round);
      comm.world->barrier("test");
    }
  });
}

TEST(Local, EveryRankHasItsOwnContext) {
  std::mutex mutex;
  std::set<std::shared_ptr<Pool>> pools;
  run_local({2, 2},
            [&](Communicator& comm) {
              EXPECT_EQ(context().rank, comm.rank);
              EXPECT_TRUE(context().grad_enabled);
#ifdef _OPENMP
              EXPECT_EQ(context().threads, 3);
#endif
              std::lock_guard lock(mutex);
              pools.insert(context().pool);
            },
            {.threads_per_rank = 3});
  EXPECT_EQ(pools.size(), 4u);
}

// The message of the Error that `body` makes run_local throw.
std::string error_of(const Topology& topology, const std::function<void(Communicator&)>& body,
                     std::chrono::milliseconds timeout = std::chrono::milliseconds(20'000)) {
  return godwit::error_of([&] { run_local(topology, body, {.timeout = timeout}); });
}

TEST(LocalFailure, FirstFailureIsRethrownAndPeersReceiveIt) {
  for (int failing : {0, 3, 5}) {
    std::atomic<int> told{0};
    const std::string text = error_of({3, 2}, [&](Communicator& comm) {
      const Tensor x = Tensor::zeros({100});
      comm.world->all_reduce(x, Reduce::sum, "first");
      if (comm.rank == failing) fail("loader: corrupt file");
      try {
        (comm.rank % 2 ? *comm.intra : *comm.inter).all_reduce(x, Reduce::sum, "second");
        comm.world->all_reduce(x, Reduce::sum, "third");
      } catch (const Error& error) {
        const std::string what = error.what();
        const std::string own = "rank " + std::to_string(comm.rank) + ": ";
        if (what.starts_with(own) && what.find("phase '") != std::string::npos &&
            what.find("rank " + std::to_string(failing) + " failed: loader: corrupt file") != std::string::npos)
          ++told;
        throw;
      }
    });
    EXPECT_EQ(text, "rank " + std::to_string(failing) + ": loader: corrupt file");
    EXPECT_EQ(told.load(), 5);
  }
}

TEST(LocalFailure, ASingleRankKeepsItsMessage) {
  EXPECT_EQ(error_of({1, 1}, [](Communicator&) { fail("model: unknown"); }), "model: unknown");
}

TEST(LocalFailure, OtherExceptionTypesArePreserved) {
  EXPECT_THROW(run_local({4, 1},
                         [](Communicator& comm) {
                           if (comm.rank == 2) throw std::out_of_range("index");
                           comm.world->barrier("wait");
                         }),
               std::out_of_range);
  EXPECT_THROW(run_local({3, 1},
                         [](Communicator& comm) {
                           if (comm.rank == 0) throw 7;
                           comm.world->barrier("wait");
                         }),
               int);
}

TEST(LocalFailure, AbortCarriesItsReason) {
  const std::string text = error_of({2, 1}, [](Communicator& comm) {
    if (comm.rank == 1) comm.intra->control()->abort("interrupted by the user");
    else comm.world->barrier("wait");
  });
  EXPECT_EQ(text, "rank 1: interrupted by the user");
}

TEST(LocalFailure, RankThatEndsEarlyIsNamed) {
  const std::string text = error_of({4, 1}, [](Communicator& comm) {
    comm.world->barrier("start");
    if (comm.rank == 2) return;
    comm.world->all_reduce(Tensor::zeros({4}), Reduce::sum, "gradients");
  });
  EXPECT_NE(text.find("phase 'gradients'"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 2 has ended"), std::string::npos) << text;
}

TEST(Local, WaitingForABusyRankDoesNotTimeOut) {
  const auto slow = [](bool busy) {
    return [busy](Communicator& comm) {
      const auto token = busy && comm.rank == 0 ? comm.world->control()->busy() : nullptr;
      if (comm.rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(700));
      comm.inter->all_reduce(Tensor::zeros({4}), Reduce::sum, "gradients");
    };
  };
  run_local({3, 1}, slow(true), {.timeout = std::chrono::milliseconds(250)});
  EXPECT_NE(error_of({3, 1}, slow(false), std::chrono::milliseconds(250)).find("timeout: rank 0"), std::string::npos);
}

TEST(LocalFailure, TimeoutNamesPhaseAndAbsentRanks) {
  std::atomic<bool> release{false};
  const std::string text = error_of(
      {4, 1},
      [&](Communicator& comm) {
        if (comm.rank == 1 || comm.rank == 3) {
          while (!release) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        struct Release {
          std::atomic<bool>& flag;
          ~Release() { flag = true; }
        } guard{release};
        comm.world->barrier("epoch end");
      },
      std::chrono::milliseconds(150));
  EXPECT_NE(text.find("phase 'epoch end': timeout: ranks 1 and 3 did not join within 0.15 s"), std::string::npos)
      << text;
}

TEST(LocalFailure, DifferentCallsAreReported) {
  const Tensor none;
  auto expect = [](const std::function<void(Communicator&)>& body, const std::string& part) {
    const std::string text = error_of({3, 1}, body);
    EXPECT_NE(text.find("ranks disagree"), std::string::npos) << text;
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(
      [](Communicator& comm) {
        const Tensor x = Tensor::zeros({6}), y({6}), z({18});
        if (comm.rank == 1) comm.world->all_to_all(x, y, "a");
        else comm.world->all_gather(x, z, "a");
      },
      "rank 1 calls all_to_all in phase 'a' of 24 bytes float32");
  expect([](Communicator& comm) { comm.world->all_reduce(Tensor::zeros({6 + (comm.rank == 2)}), Reduce::sum, "b"); },
         "rank 2 calls all_reduce in phase 'b' of 28 bytes float32 (sum)");
  expect([](Communicator& comm) { comm.world->barrier(comm.rank == 2 ? "c" : "d"); },
         "rank 2 calls barrier in phase 'c'");
  expect([](Communicator& comm) { comm.world->broadcast(Tensor::zeros({2}), comm.rank == 1, "e"); },
         "rank 1 calls broadcast in phase 'e' of 8 bytes float32 from 1");
  expect(
      [](Communicator& comm) {
        comm.world->all_reduce(Tensor::zeros({2}), comm.rank == 1 ? Reduce::mean : Reduce::sum, "f");
      },
      "(mean)");
  expect(
      [](Communicator& comm) {
        const bool odd = comm.rank == 1;
        comm.world->broadcast(Tensor::zeros({odd ? 2 : 1}, odd ? DType::f32 : DType::f64), 0, "g");
      },
      "of 8 bytes float32 from 0");
}

TEST(LocalFailure, GroupIsUnusableAfterAFailure) {
  error_of({2, 1}, [](Communicator& comm) {
    EXPECT_THROW(comm.world->barrier(comm.rank ? "a" : "b"), Error);
    comm.world->barrier("again");
  });
}

// Ranks fail at random points while others are copying. Sanitizers check the memory accesses.
TEST(LocalFailure, FailuresAtAnyPointNeitherHangNorAccessFreedMemory) {
  for (int round = 0; round < 60; ++round) {
    error_of({2, 3}, [&](Communicator& comm) {
      RandomStream random(static_cast<uint64_t>(round), Purpose::test);
      const int failing = static_cast<int>(random.below(6)), when = static_cast<int>(random.below(12));
      for (int call = 0;; ++call) {
        if (comm.rank == failing && call == when) fail("stop");
        const Tensor x = Tensor::zeros({3000}), y({9000}), z({1000});
        if (call % 4 == 0) comm.world->all_reduce(x, Reduce::sum, "x");
        else if (call % 4 == 1) comm.intra->all_gather(x, y, "y");
        else if (call % 4 == 2) comm.inter->all_reduce(x, Reduce::mean, "z");
        else comm.intra->reduce_scatter(x, z, Reduce::sum, "w");
      }
    });
  }
}

// The run of a child process is suspended for longer than the timeout, while rank 0 waits.
TEST(LocalDeathTest, ASuspendedRunContinues) {
  if (std::string(GODWIT_SANITIZE).find("thread") != std::string::npos)
    GTEST_SKIP() << "the thread sanitizer cannot start threads in a child process";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    test::suspend_soon();
    const auto body = [](Communicator& comm) {
      if (comm.rank == 1) test::wait_for_suspension();
      comm.world->barrier("later");
    };
    run_local({2, 1}, body, {.timeout = std::chrono::seconds(2)});
    std::_Exit(7);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(7), "");
}

TEST(Local, RefusesInvalidTopologiesAndOptions) {
  EXPECT_THROW(run_local({0, 1}, [](Communicator&) {}), Error);
  EXPECT_THROW(run_local({2, -1}, [](Communicator&) {}), Error);
  EXPECT_THROW(run_local({1, 1}, [](Communicator&) {}, {.threads_per_rank = -1}), Error);
  const auto nothing = [](Communicator&) {};
  EXPECT_EQ(error_of({65'536, 65'536}, nothing),
            "run_local: 65536 nodes of 65536 workers; expected at most 1048576 workers in total");
  for (const auto timeout : {std::chrono::milliseconds(0), std::chrono::milliseconds(std::chrono::years(11)),
                             std::chrono::milliseconds::max()})
    EXPECT_NE(error_of({1, 1}, nothing, timeout).find(" ms; expected 1 ms to 10 years"), std::string::npos)
        << timeout.count();
}

}  // namespace local_test
}  // namespace godwit
