#include "comm/transport/death_reporter.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <string>

namespace godwit {
namespace death_reporter_test {

// The standard error of a process that runs `body`, and of its children.
std::string printed_by(const std::function<void()>& body) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    setpgid(0, 0);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    body();
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  std::array<char, 256> buffer;
  for (ssize_t count; (count = ::read(ends[0], buffer.data(), buffer.size())) > 0;)  // until all have ended
    text.append(buffer.data(), static_cast<size_t>(count));
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return text;
}

constexpr const char* kLine =
    "phase 'dense/all_reduce': rank 2 on a has ended; its process was killed or has crashed\n";

TEST(DeathReporter, AKilledProcessIsNamedWithItsPhase) {
  EXPECT_EQ(printed_by([] {
              DeathReporter reporter("rank 2 on a");
              reporter.set_phase("a phase with a longer name");
              reporter.set_phase("dense/all_reduce");
              raise(SIGKILL);
            }),
            kLine);
  EXPECT_EQ(printed_by([] {
              DeathReporter reporter("rank 2 on a");
              reporter.set_phase("dense/all_reduce");
              _exit(3);
            }),
            kLine)
      << "the process ends without its destructors";
}

TEST(DeathReporter, ALongPhaseIsCut) {
  EXPECT_EQ(printed_by([] {
              DeathReporter reporter("rank 2 on a");
              reporter.set_phase(std::string(1000, 'x'));
              raise(SIGKILL);
            }),
            "phase '" + std::string(127, 'x') + "': rank 2 on a has ended; its process was killed or has crashed\n");
}

TEST(DeathReporter, AProcessThatEndsByItselfIsNotNamed) {
  EXPECT_EQ(printed_by([] {
              DeathReporter reporter("rank 2 on a");
              reporter.set_phase("dense/all_reduce");
            }),
            "");
  EXPECT_EQ(printed_by([] {
              DeathReporter reporter("rank 2 on a");
              reporter.set_phase("dense/all_reduce");
              reporter.set_phase("");
              raise(SIGKILL);
            }),
            "");
}

// A launcher ends the other ranks after the first failure.
TEST(DeathReporter, ASignalToTheProcessGroupIsNotReported) {
  for (const int signal : {SIGTERM, SIGKILL})
    EXPECT_EQ(printed_by([signal] {
                DeathReporter reporter("rank 2 on a");
                reporter.set_phase("dense/all_reduce");
                killpg(0, signal);
                for (;;) pause();
              }),
              "");
}

}  // namespace death_reporter_test
}  // namespace godwit
