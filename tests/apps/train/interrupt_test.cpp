#include "apps/train/interrupt.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "engine/gemm.h"
#include "engine/tensor.h"

namespace godwit::apps {
namespace interrupt_test {

// Raises a signal that counts as the second one.
void raise_later(int signal) {
  std::this_thread::sleep_for(std::chrono::milliseconds(1010));
  std::raise(signal);
}

TEST(InterruptDeathTest, TheFirstSignalIsRecordedAndTheSecondEndsTheProcess) {
  EXPECT_EXIT(
      {
        catch_interrupts("replaced", "replaced");
        catch_interrupts("stops soon", "stopped; run directory runs/x");
        std::raise(SIGINT);
        if (interrupted() == SIGINT) raise_later(SIGINT);
      },
      testing::ExitedWithCode(130), "^SIGINT: stops soon\nstopped; run directory runs/x\n$");
}

TEST(InterruptDeathTest, SigtermBehavesLikeSigint) {
  EXPECT_EXIT(
      {
        catch_interrupts("", "stopped");
        if (interrupted() == 0) std::raise(SIGTERM);
        if (interrupted() == SIGTERM) raise_later(SIGTERM);
      },
      testing::ExitedWithCode(143), "^stopped\n$");
}

// `timeout` and batch systems send several signals at once.
TEST(InterruptDeathTest, SignalsWithinASecondOfTheFirstAreIgnored) {
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_DFL);
        catch_interrupts("stops soon", "stopped");
        std::raise(SIGHUP);
        std::raise(SIGTERM);
        std::raise(SIGTERM);
        std::_Exit(interrupted());
      },
      testing::ExitedWithCode(SIGHUP), "^SIGHUP: stops soon\n$");
}

// A terminal may send two SIGHUPs when it is closed.
TEST(InterruptDeathTest, SighupIsRecordedAndNeverEndsTheProcess) {
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_DFL);
        catch_interrupts("stops soon", "stopped");
        std::raise(SIGHUP);
        std::raise(SIGHUP);
        if (interrupted() == SIGHUP) raise_later(SIGTERM);
      },
      testing::ExitedWithCode(143), "^SIGHUP: stops soon\nstopped\n$");
}

// mpirun passes SIGUSR2 on to all of its processes.
TEST(InterruptDeathTest, Sigusr2StopsLikeSigtermAndNeverEndsTheProcess) {
  EXPECT_EXIT(
      {
        catch_interrupts("stops soon", "stopped");
        std::raise(SIGUSR2);
        std::raise(SIGUSR2);
        std::_Exit(interrupted());
      },
      testing::ExitedWithCode(SIGTERM), "^SIGUSR2: stops soon\n$");
}

TEST(InterruptDeathTest, Sigusr1RequestsACheckpoint) {
  EXPECT_EXIT(
      {
        catch_checkpoint_signal();
        std::raise(SIGUSR1);
        catch_interrupts("stops soon", "stopped");
        std::raise(SIGUSR1);
        std::_Exit(interrupted() == 0 && take_checkpoint_signal() && !take_checkpoint_signal() ? 7 : 1);
      },
      testing::ExitedWithCode(7), "^$");
}

// Computes products while another thread sends SIGUSR1. Exits with 7 if this thread handled no signal.
void compute_during_signals() {
  handle_signals_in_thread();
  catch_checkpoint_signal();
  catch_interrupts("stops soon", "stopped");
  std::atomic<bool> done = false;
  std::thread sender([&] {
    for (int i = 0; i < 500; ++i) {
      ::kill(::getpid(), SIGUSR1);
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
    done = true;
  });
  const Tensor a = Tensor::full({64, 512}, 1), b = Tensor::full({512, 128}, 1), c({64, 128});
  const int64_t m = 64, n = 128, k = 512;
  int asked = 0;
  while (!done) {
    gemm(Cpu{}, false, false, m, n, k, 1, a.data<float>(), k, b.data<float>(), n, 0, c.data<float>(), n);
    asked += take_checkpoint_signal();
  }
  sender.join();
  sigset_t blocked;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2})
    if (sigismember(&blocked, signal) != 1) std::_Exit(1);
  std::_Exit(asked > 1 && c.data<float>()[0] == 512 ? 7 : 2);
}

// A signal handler in a matrix product of oneDNN 2.6 on AVX2 would overwrite the heap.
TEST(InterruptDeathTest, ADedicatedThreadHandlesSignals) {
  EXPECT_EXIT(compute_during_signals(), testing::ExitedWithCode(7), "^$");
}

TEST(InterruptDeathTest, KeepsAnIgnoredSighup) {
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_IGN);
        catch_interrupts("stops soon", "stopped");
        std::raise(SIGHUP);
        std::_Exit(interrupted());
      },
      testing::ExitedWithCode(0), "^$");
}

TEST(InterruptDeathTest, SilencedSignalsAreStillRecorded) {
  EXPECT_EXIT(
      {
        catch_interrupts("stops soon", "stopped");
        silence_interrupts();
        std::raise(SIGTERM);
        if (interrupted() == SIGTERM) raise_later(SIGTERM);
      },
      testing::ExitedWithCode(143), "^$");
}

TEST(InterruptDeathTest, AVeryLongMessageIsTruncated) {
  EXPECT_EXIT(
      {
        catch_interrupts(std::string(100000, 'y'), std::string(100000, 'x'));
        std::raise(SIGINT);
        raise_later(SIGINT);
      },
      testing::ExitedWithCode(130), "yyy\nx.*xxx\n");
}

}  // namespace interrupt_test
}  // namespace godwit::apps
