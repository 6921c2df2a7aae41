// tools/netlab: training on emulated hosts, and a link that is cut.
#include "tests/apps/programs/train_resnet.h"
#include "tests/mpirun.h"

namespace godwit {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Netlab : public TrainResnet {
 protected:
  void SetUp() override {
    if (const std::string reason = no_netlab(); !reason.empty()) GTEST_SKIP() << reason;
    TrainResnet::SetUp();
  }
  MpiOutcome netlab(const std::string& arguments) const { return godwit::netlab(arguments, scratch_); }
  const std::string train_ =
      GODWIT_BINARY_DIR "/train_resnet --data data --batch 4 --set log_every=1 --optimizer birder";
};

TEST_F(Netlab, GivesTheSameBitsAsThreads) {
  const std::string flags = "--max-steps 8 --nodes 3 --workers-per-node 2";
  ASSERT_EQ(train(flags + " --optimizer birder --batch 4 --set log_every=1").exit_code, 0);
  const std::string whole = results(metrics()), weights = read_file(run_dir() / "weights.safetensors");
  fs::remove_all(run_dir());
  const MpiOutcome outcome =
      netlab("--hosts 3 --workers-per-node 2 --rate 200mbit -- " + train_ + " --max-steps 8 --run-dir run");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(results(metrics()) == whole);
  EXPECT_TRUE(read_file(run_dir() / "weights.safetensors") == weights);
  int percent = 0;
  const size_t at = outcome.err.find("Mbit/s, ");
  ASSERT_NE(at, std::string::npos) << outcome.err;
  ASSERT_EQ(std::sscanf(outcome.err.c_str() + at, "Mbit/s, %d %% of 200mbit", &percent), 1) << outcome.err;
  EXPECT_GT(percent, 50) << outcome.err;
  EXPECT_LE(percent, 105) << outcome.err;
}

// One bit per value goes to the owner of the value, and one comes back: 2(n−1)P/8 bytes of all n hosts in a step. The
// interfaces also count headers, acknowledgments and the start of the processes.
TEST_F(Netlab, InterfacesSendOneBitPerValueEachWay) {
  constexpr int kHosts = 3, kSteps = 12;
  const MpiOutcome outcome = netlab("--hosts 3 --rate 200mbit --measure 0 -- " + train_ +
                                    " --model resnet18 --set model.small_stem=true --max-steps 12 --set "
                                    "checkpoint.at_end=false --run-dir run");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json summary = json::parse(read_file(run_dir() / "summary.json"));
  const double expected = 2.0 * (kHosts - 1) * summary["parameters"].get<double>() / 8 * kSteps;
  double counted = 0, measured = 0;
  for (const json& line : metrics()) counted += line.value("bytes_inter", 0.0);
  EXPECT_NEAR(counted / expected, 1, 0.01);
  const std::string says = "the interfaces of the hosts sent ";
  const size_t at = outcome.err.find(says);
  ASSERT_NE(at, std::string::npos) << outcome.err;
  for (size_t i = at + says.size(); outcome.err[i] != ' '; ++i)
    if (outcome.err[i] != ',') measured = 10 * measured + (outcome.err[i] - '0');
  EXPECT_GE(measured, counted);
  EXPECT_LE(measured, 1.02 * expected);
}

// The ranks' own watchdog names rank, host and phase; mpirun, which is told of the cut by TCP after 5 s, then ends the
// hosts. The timeout is shorter than that, and long enough that a busy machine does not cause it before the cut.
TEST_F(Netlab, ACutLinkEndsAllRanks) {
  const std::string endless = train_ + " --epochs 1000000 --max-steps 0 --run-dir run --set timeout_s=3";
  const MpiOutcome outcome = netlab("--hosts 3 --measure 0 --cut 2:5 -- " + endless);
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_TRUE(outcome.says(": phase '")) << outcome.err;
  EXPECT_TRUE(outcome.says("timeout: rank 2 did not join within 3 s") ||
              outcome.says("timeout: rank 2 joined, but its data did not arrive within 3 s"))
      << outcome.err;
  EXPECT_TRUE(outcome.says("; rank 2 on host2 does not answer")) << outcome.err;
  EXPECT_LT(outcome.seconds, 45) << outcome.err;
}

// The other process of that host names it.
TEST_F(Netlab, AKilledProcessIsNamedWithItsHost) {
  const std::string killed =
      "sh -c '[ $OMPI_COMM_WORLD_RANK = 3 ] && ( until [ -s run/metrics.jsonl ]; do sleep 0.1; done; kill -KILL $$ ) & "
      "exec \"$@\"' sh ";
  const MpiOutcome outcome = netlab("--hosts 2 --workers-per-node 2 --measure 0 -- " + killed + train_ +
                                    " --epochs 1000000 --max-steps 0 --run-dir run");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_TRUE(outcome.says("rank 2 on host1: phase '")) << outcome.err;
  EXPECT_TRUE(outcome.says("': rank 3 on host1 has ended; its process was killed or has crashed\n")) << outcome.err;
  EXPECT_LT(outcome.seconds, 45) << outcome.err;
}

TEST_F(Netlab, RefusesWhatItCannotEmulate) {
  for (const auto& [arguments, words] :
       {std::pair{"--hosts 1", "--hosts 1: expects 2 to 250"},
        {"--rate 5", "'5': expects a rate such as 100mbit or 1gbit"},
        {"--hosts 2 --cut 2:1", "--cut '2:1': expects HOST:SECONDS with a host from 0 to 1"}}) {
    const MpiOutcome outcome = netlab(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_TRUE(outcome.says(words)) << outcome.err;
  }
}

}  // namespace
}  // namespace godwit
