// The MPI transport under mpirun. mpi_ranks runs the collectives tests, and fails in every way in which a rank can
// fail.
#include "comm/transport/mpi.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/mpirun.h"

namespace godwit {
namespace mpi_test {

constexpr const char* kRanks = "'" GODWIT_SHELL_BINARY_DIR "/mpi_ranks' ";

class Mpi : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = no_mpirun(); !reason.empty()) GTEST_SKIP() << reason;
  }

  // Expects all processes to end soon with an error, and exactly one of them to print `text`, once. `options`: of
  // mpirun.
  MpiOutcome expect_failure(const std::string& name, const std::string& text, int ranks = 3,
                            const std::string& options = "") {
    const MpiOutcome outcome = mpirun(ranks, options + kRanks + "fail " + name, folder_);
    EXPECT_NE(outcome.exit_code, 0) << name;
    EXPECT_LT(outcome.seconds, 30) << name;
    if (!text.empty()) {
      const size_t first = outcome.err.find("mpi_ranks: ");
      EXPECT_TRUE(outcome.says(text)) << name << ": " << outcome.err;
      EXPECT_EQ(outcome.err.find("mpi_ranks: ", first + 1), std::string::npos) << name << ": " << outcome.err;
    }
    return outcome;
  }

  TempFolder folder_;
};

// With five ranks, the tree of a broadcast is incomplete and parts have different lengths. Eight ranks have all kinds
// of topologies. Three and four ranks would take as long as two and five; the address sanitizer doubles the time.
TEST_F(Mpi, CollectivesOnOneToEightRanks) {
  const bool sanitized = !std::string(GODWIT_SANITIZE).empty();
  for (const int ranks : sanitized ? std::vector{2, 3} : std::vector{1, 2, 5, 8}) {
    const MpiOutcome outcome = mpirun(ranks, kRanks, folder_);
    EXPECT_EQ(outcome.exit_code, 0) << ranks << " ranks\n" << outcome.out << outcome.err;
    EXPECT_NE(outcome.out.find("[  PASSED  ]"), std::string::npos) << ranks << " ranks";
  }
}

// More ranks than in the other tests, and no power of two.
TEST_F(Mpi, SmallCallsOfManyRanks) {
  const char* tests =
      "--gtest_filter=MpiRanks.Messages*:*/cpu:-*ManyPieces*:*Pitfall*:*SmallAllReduces*:*Bytes*:"
      "*Broadcast*:*AllToAll*:*AStopRequest*:*Steps*:*RanksAgree*";
  for (const int ranks : std::string(GODWIT_SANITIZE).empty() ? std::vector{9, 13} : std::vector{9}) {
    const MpiOutcome outcome = mpirun(ranks, kRanks + std::string(tests), folder_);
    EXPECT_EQ(outcome.exit_code, 0) << ranks << " ranks\n" << outcome.out << outcome.err;
    EXPECT_NE(outcome.out.find("MessagesGrowWithTheLogarithmOfTheRanks"), std::string::npos) << outcome.out;
  }
}

TEST_F(Mpi, CallsOfManyRanks) {
  const MpiOutcome outcome = mpirun(16, kRanks + std::string("--gtest_filter=MpiRanks.Calls*"), folder_);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("CallsOfManyRanksUseFewConnections"), std::string::npos) << outcome.out;
}

TEST_F(Mpi, AFailureEndsAllRanksAndIsReportedOnce) {
  expect_failure("throw", "mpi_ranks: rank 2: loader: corrupt file\n");
  expect_failure("all_throw", ": data folder x: not found\n");
  expect_failure("computing", "mpi_ranks: rank 1: loader: corrupt file\n");
  expect_failure("other_type", "index 7\n");
  expect_failure("abort", "mpi_ranks: rank 1: interrupted by the user\n");
  const MpiOutcome two = expect_failure("two_throw", "disk ");
  EXPECT_TRUE(two.says("rank 1: disk 1 is full") || two.says("rank 2: disk 2 is full")) << two.err;
  expect_failure("after_the_end", "mpi_ranks: rank 1: MPI_Wait: ");
}

TEST_F(Mpi, DifferentCallsAreReported) {
  expect_failure("size",
                 "ranks disagree: rank 0 calls all_reduce in phase 'b' of 240000 bytes float32 (sum), rank 2 "
                 "calls all_reduce in phase 'b' of 244000 bytes float32 (sum)");
  expect_failure("small_size", "rank 2 calls all_reduce in phase 'b' of 4000 bytes float32 (sum)");
  expect_failure("collective", "rank 1 calls all_to_all in phase 'a' of 24 bytes float32");
  expect_failure("phase", "rank 2 calls barrier in phase 'c'");
  expect_failure("topologies", "different topologies");
}

// With eight ranks, only three other ranks receive a rank's call from the rank itself.
TEST_F(Mpi, DifferentCallsOfManyRanksAreReported) {
  expect_failure("size", "rank 2 calls all_reduce in phase 'b' of 244000 bytes float32 (sum)", 8);
  expect_failure("phase", "rank 2 calls barrier in phase 'c'", 8);
  expect_failure("gather", "rank 2 calls all_gather in phase 'h' of 8 bytes float32", 12);
}

TEST_F(Mpi, ARankThatEndsDiesOrStopsIsDetected) {
  expect_failure("ends_early", "phase 'gradients': rank 2 has ended and will not join\n");
  const MpiOutcome killed = expect_failure("killed", "");
  EXPECT_TRUE(killed.says(": phase 'gradients': rank 1 on ")) << killed.err;
  EXPECT_TRUE(killed.says(" has ended; its process was killed or has crashed\n")) << killed.err;
  const MpiOutcome stopped =
      expect_failure("stopped", "phase 'gradients': timeout: rank 1 did not join within 5 s; rank 1 does not answer\n");
  EXPECT_GE(stopped.seconds, 5);
  // mpirun wakes rank 0 to end it.
  expect_failure("stopped_first",
                 "phase 'gradients': timeout: rank 0 did not join within 5 s; rank 0 does not answer\n");
  // Ranks that wait for another waiting rank report nothing.
  const MpiOutcome barrier = expect_failure("stopped_before_barrier",
                                            ": timeout: rank 1 did not join within 5 s; rank 1 does not answer\n", 12);
  EXPECT_EQ(barrier.err.find("did not join", barrier.err.find("did not join") + 1), std::string::npos) << barrier.err;
}

// Ctrl-Z, a batch system or a debugger may suspend all processes. The time does not count.
TEST_F(Mpi, ASuspendedRunContinues) {
  const MpiOutcome outcome = mpirun(2, kRanks + std::string("fail suspended"), folder_);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_GT(outcome.seconds, 3);
}

// For example, the reporter is of another build, and expects that another rank reports.
TEST_F(Mpi, TheNextRankReportsIfTheReporterDoesNot) {
  expect_failure("reporter_stops", "mpi_ranks: rank 2: loader: corrupt file\n");
}

TEST_F(Mpi, OneRankReportsIfTheLauncherIsSlow) {
  expect_failure("slow_abort", "mpi_ranks: rank 2: loader: corrupt file\n");
}

TEST_F(Mpi, ARankThatCannotSendItsErrorReportsIt) {
  expect_failure("no_notice", "mpi_ranks: rank 1: loader: corrupt file\n");
}

// Rank 1 ends after the error of rank 0, and before rank 0 reports it.
TEST_F(Mpi, AnErrorIsReportedAlthoughAProcessHasEnded) {
  expect_failure("lost_after_error", "mpi_ranks: rank 0: loader: corrupt file\n", 3,
                 "--mca orte_allowed_exit_without_sync 1 ");
}

TEST_F(Mpi, AnAllReduceFillsASlowLineInBothDirections) {
  if (const std::string reason = no_netlab(); !reason.empty()) GTEST_SKIP() << reason;
  const MpiOutcome outcome = netlab("--hosts 4 --rate 40mbit --measure 0.5 --accept-any-rate -- " +
                                        (kRanks + std::string("--gtest_filter=*FillsTheLine")),
                                    folder_);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("AnAllReduceFillsTheLine ("), std::string::npos) << outcome.out << outcome.err;
}

TEST_F(Mpi, RefusesInvalidTimeouts) {
  for (const auto timeout : {std::chrono::milliseconds(0), std::chrono::milliseconds(std::chrono::years(11))}) {
    const std::string error = error_of([&] { run_mpi({1, 1}, [](Communicator&) {}, {.timeout = timeout}); });
    EXPECT_NE(error.find(" ms; expected 1 ms to 10 years"), std::string::npos) << error;
  }
}

// One process of the launch runs another program.
TEST_F(Mpi, WaitingForRanksThatNeverStartTimesOut) {
  const MpiOutcome outcome = mpirun(2, kRanks + std::string("fail alone : -np 1 sleep 60"), folder_);
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_LT(outcome.seconds, 30);
  EXPECT_TRUE(outcome.says("rank 0: not all ranks started within 1 s; ")) << outcome.err;
}

}  // namespace mpi_test
}  // namespace godwit
