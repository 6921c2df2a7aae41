// tools/netlab: training on emulated hosts, and a link that is interrupted.
#include <algorithm>
#include <utility>

#include "tests/apps/programs/train_resnet.h"
#include "tests/mpirun.h"

namespace godwit {
namespace netlab_test {

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
      "'" GODWIT_SHELL_BINARY_DIR "/train_resnet' --data data --batch 4 --set log_every=1 --optimizer birder";
};

TEST_F(Netlab, GivesTheSameBitsAsThreads) {
  const std::string flags = "--max-steps 8 --nodes 3 --workers-per-node 2";
  ASSERT_EQ(train(flags + " --optimizer birder --batch 4 --set log_every=1").exit_code, 0);
  const std::string whole = results(metrics()), weights = read_file(run_dir() / "weights.safetensors");
  fs::remove_all(run_dir());
  const MpiOutcome outcome = netlab("--hosts 3 --workers-per-node 2 --rate 200mbit --accept-any-rate -- " + train_ +
                                    " --max-steps 8 --run-dir run");
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

// Each value costs one bit to its owner and one bit back: all n hosts send 2(n−1)P/8 bytes per step. The interfaces
// also count headers, acknowledgments and the start of the processes.
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

// The ranks' watchdog names rank, host and phase. mpirun learns of the cut from TCP after 5 s, and then ends the hosts.
// The watchdog's timeout is below 5 s, but long enough not to expire before the cut on a busy machine. A rank that
// still waits for rank 2 in an earlier collective did not join either.
TEST_F(Netlab, ACutLinkEndsAllRanks) {
  const std::string endless = train_ + " --epochs 1000000 --max-steps 0 --run-dir run --set timeout_s=3";
  const MpiOutcome outcome = netlab("--hosts 3 --measure 0 --cut 2:5 -- " + endless);
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_TRUE(outcome.says(": phase '")) << outcome.err;
  EXPECT_THAT(outcome.err, ::testing::ContainsRegex("timeout: (rank 2|ranks [01] and 2) did not join within 3 s|"
                                                    "timeout: rank 2 joined, but its data did not arrive within 3 s"));
  EXPECT_TRUE(outcome.says("; rank 2 on host2 does not answer")) << outcome.err;
  EXPECT_LT(outcome.seconds, 45) << outcome.err;
}

// A prefix of a command that kills one rank after the first steps.
std::string killing(int rank) {
  return "sh -c '[ $OMPI_COMM_WORLD_RANK = " + std::to_string(rank) +
         " ] && ( until [ -s run/metrics.jsonl ]; do sleep 0.1; done; kill -KILL $$ ) & exec \"$@\"' sh ";
}

// The other process on the host of the killed process names it.
TEST_F(Netlab, AKilledProcessIsNamedWithItsHost) {
  const MpiOutcome outcome = netlab("--hosts 2 --workers-per-node 2 --measure 0 -- " + killing(3) + train_ +
                                    " --epochs 1000000 --max-steps 0 --run-dir run");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_TRUE(outcome.says("rank 2 on host1: phase '")) << outcome.err;
  EXPECT_TRUE(outcome.says("': rank 3 on host1 has ended; its process was killed or has crashed\n")) << outcome.err;
  EXPECT_LT(outcome.seconds, 45) << outcome.err;
}

TEST_F(Netlab, AKilledProcessThatIsAloneOnItsHostIsNamed) {
  const MpiOutcome outcome =
      netlab("--hosts 2 --measure 0 -- " + killing(1) + train_ + " --epochs 1000000 --max-steps 0 --run-dir run");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_TRUE(outcome.says("\nphase '") || outcome.err.starts_with("phase '")) << outcome.err;
  EXPECT_TRUE(outcome.says("': rank 1 on host1 has ended; its process was killed or has crashed\n")) << outcome.err;
  EXPECT_FALSE(outcome.says("rank 0 on host0 has ended")) << "it ends after the other: " << outcome.err;
  EXPECT_LT(outcome.seconds, 45) << outcome.err;
}

// Runs netlab with another rate of a device: one of the two of host 2's link, or all.
std::string with_other_link(const std::string& device, const std::string& rate, const std::string& arguments) {
  return "python3 -B -c '\n"
         "import importlib.machinery, importlib.util, sys\n"
         "tools, device, rate, *sys.argv[1:] = sys.argv[1:]\n"
         "sys.path.insert(0, tools)\n"
         "loader = importlib.machinery.SourceFileLoader(\"netlab\", tools + \"/netlab\")\n"
         "netlab = importlib.util.module_from_spec(importlib.util.spec_from_loader(\"netlab\", loader))\n"
         "loader.exec_module(netlab)\n"
         "shape = netlab.Lab.shape\n"
         "def other(lab, space, name):\n"
         "    asked = lab.rate\n"
         "    if (space[-1] if name == \"eth0\" else \"\") + name == device or device == \"all\":\n"
         "        lab.rate = rate\n"
         "    shape(lab, space, name)\n"
         "    lab.rate = asked\n"
         "netlab.Lab.shape = other\n"
         "sys.exit(netlab.main())' '" GODWIT_SHELL_SOURCE_DIR "/tools' " +
         device + " " + rate + " " + arguments;
}

TEST_F(Netlab, RefusesARateThatALinkDoesNotHold) {
  const MpiOutcome high = netlab("--hosts 2 --rate 1000gbit --measure 0.3");
  EXPECT_EQ(high.exit_code, 1) << high.err;
  EXPECT_TRUE(high.says("% of --rate 1000gbit; use a lower --rate, fewer --hosts or an idle machine, or continue with "
                        "--accept-any-rate\n"))
      << high.err;
  const std::string links = "--hosts 3 --rate 20mbit --measure 0.5";
  // Either link may be the slowest, because acknowledgments of the next link wait in the slow direction.
  const std::string words[] = {"the link from host 1 to host 2 carries ", "the link from host 2 to host 0 carries "};
  for (const auto& [device, rate] : {std::pair{"host2", "8mbit"}, {"2eth0", "8mbit"}, {"all", "40mbit"}}) {
    const MpiOutcome outcome = run_line(with_other_link(device, rate, links), scratch_);
    EXPECT_EQ(outcome.exit_code, 1) << device << outcome.err;
    if (device != std::string("all")) {
      EXPECT_TRUE(outcome.says(words[0]) || outcome.says(words[1])) << device << outcome.err;
    }
    EXPECT_TRUE(outcome.says(" % of --rate 20mbit; use a lower --rate")) << device << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
  const MpiOutcome accepted = run_line(with_other_link("host2", "8mbit", links + " --accept-any-rate"), scratch_);
  EXPECT_EQ(accepted.exit_code, 0) << accepted.err;
  EXPECT_TRUE(accepted.says("netlab: warning: the link from host ")) << accepted.err;
  const MpiOutcome held = netlab("--hosts 3 --rate 20mbit --measure 1");
  EXPECT_EQ(held.exit_code, 0) << held.err;
}

// Data in one direction delays the acknowledgments of the other, so slow links are measured one direction at a time.
TEST_F(Netlab, MeasuresSlowLinks) {
  for (const char* links : {"--hosts 2 --rate 128kbit", "--hosts 3 --rate 1mbit", "--hosts 4 --rate 2mbit"}) {
    const MpiOutcome held = netlab(links);
    EXPECT_EQ(held.exit_code, 0) << links << held.err;
    EXPECT_LT(held.seconds, 45) << links;
  }
  const MpiOutcome fast = run_line(with_other_link("all", "2mbit", "--hosts 3 --rate 1mbit"), scratch_);
  EXPECT_EQ(fast.exit_code, 1) << fast.err;
  EXPECT_TRUE(fast.says(" % of --rate 1mbit; use a lower --rate")) << fast.err;
}

TEST_F(Netlab, PassesTheRateOfSlowLinks) {
  const MpiOutcome outcome = netlab("--hosts 2 --rate 500kbit --accept-any-rate -- sh -c 'echo $NETLAB_MBIT'");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const double mbit = std::stod(outcome.out);
  EXPECT_GT(mbit, 0.3) << outcome.out;
  EXPECT_LT(mbit, 0.7) << outcome.out;
}

TEST_F(Netlab, RunsWithATemporaryFolderWithSpaces) {
  fs::create_directory(scratch_ / "a folder");
  const MpiOutcome outcome = run_line("TMPDIR=\"$PWD/a folder\" timeout 60 '" GODWIT_SHELL_SOURCE_DIR
                                      "/tools/netlab' --hosts 2 --measure 0 -- hostname",
                                      scratch_);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(outcome.out == "host0\nhost1\n" || outcome.out == "host1\nhost0\n") << outcome.out << outcome.err;
}

// Ctrl-C sends SIGINT to all processes of a terminal's foreground group, here during the measurement.
TEST_F(Netlab, EndsWithoutATracebackAtCtrlC) {
  const MpiOutcome outcome = run_line(
      "{ setsid '" GODWIT_SHELL_SOURCE_DIR
      "/tools/netlab' --hosts 2 --rate 1mbit --measure 30 & lab=$!; "
      "until [ \"$(ip netns pids godwit-$lab-1 2>/dev/null)\" ]; do kill -0 $lab || exit 9; sleep 0.05; done; sleep 1; "
      "kill -s INT -- -$lab; wait $lab; code=$?; ip netns list | grep -c godwit-$lab-; exit $code; }",
      scratch_);
  EXPECT_EQ(outcome.exit_code, 130) << outcome.err;
  EXPECT_EQ(outcome.out, "0\n");
  EXPECT_FALSE(outcome.says("Traceback")) << outcome.err;
  EXPECT_LT(outcome.seconds, 25);
}

// Starts netlab, waits until the program runs, and executes `after` with $lab, the process id of netlab. `hosts` prints
// the number of its namespaces.
std::string while_running(const std::string& after) {
  return "{ hosts() { ip netns list | grep -c godwit-$lab-; }; '" GODWIT_SHELL_SOURCE_DIR
         "/tools/netlab' --hosts 2 --measure 0 -- sh -c 'echo $$ >rank; exec sleep 1000' & lab=$!; "
         "until [ -s rank ]; do kill -0 $lab || exit 9; sleep 0.05; done; hosts; " +
         after + "; }";
}

TEST_F(Netlab, RemovesItsNamespacesAfterASignal) {
  const MpiOutcome outcome = run_line(while_running("kill -TERM $lab; wait $lab || echo failed; hosts"), scratch_);
  EXPECT_EQ(outcome.out, "3\nfailed\n0\n") << outcome.err;
  EXPECT_LT(outcome.seconds, 30);
}

TEST_F(Netlab, RemovesTheNamespacesOfAKilledNetlab) {
  const MpiOutcome outcome =
      run_line(while_running("runs() { grep -q sleep /proc/$(tail -n 1 rank)/cmdline && echo runs || echo ended; }; "
                             "kill -KILL $lab; wait $lab; hosts; runs; '" GODWIT_SHELL_SOURCE_DIR
                             "/tools/netlab' --hosts 2 --measure 0; hosts; runs"),
               scratch_);
  EXPECT_EQ(outcome.out, "3\n3\nruns\n0\nended\n") << outcome.err;
}

TEST_F(Netlab, AHostThatIsUnreachableAtTheStartIsReported) {
  const MpiOutcome outcome = netlab("--hosts 2 --measure 0 --cut 1:0 -- sleep 5");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_LT(outcome.seconds, 60);
  EXPECT_NE((outcome.out + outcome.err).find("unable to"), std::string::npos) << outcome.out << outcome.err;
}

TEST_F(Netlab, NeedsRoot) {
  const MpiOutcome outcome =
      run_line("chmod 755 . && cp '" GODWIT_SHELL_SOURCE_DIR "/tools/netlab' '" GODWIT_SHELL_SOURCE_DIR
               "/tools/launcher.py' . && setpriv --reuid 65534 --clear-groups ./netlab --hosts 2",
               scratch_);
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_TRUE(outcome.says("error: network namespaces need root; run it with sudo\n")) << outcome.err;
}

TEST_F(Netlab, RefusesInvalidArguments) {
  for (const auto& [arguments, words] :
       {std::pair{"--hosts 1", "--hosts 1: expects 2 to 250"},
        {"--measure nan", "'nan': expects a number of seconds, 0 or more"},
        {"--measure=-3", "'-3': expects a number of seconds, 0 or more"},
        {"--rate 5", "'5': expects a rate such as 100mbit or 1gbit"},
        {"--rate 63kbit", "--rate '63kbit': the lowest rate is 64kbit"},
        {"--hosts 2 --cut 2:1", "--cut '2:1': expects HOST:SECONDS with a host from 0 to 1"}}) {
    const MpiOutcome outcome = netlab(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_TRUE(outcome.says(words)) << outcome.err;
  }
}

}  // namespace netlab_test
}  // namespace godwit
