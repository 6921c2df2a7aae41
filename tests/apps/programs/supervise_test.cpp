// tools/supervise: restarts of a training command.
#include "tests/apps/programs/train_resnet.h"
#include "tests/mpirun.h"

namespace godwit {
namespace supervise_test {

using ::testing::EndsWith, ::testing::HasSubstr, ::testing::Not;

namespace fs = std::filesystem;

class Supervise : public TrainResnet {
 protected:
  Outcome supervise(const std::string& options, const std::string& command) const {
    const std::string line = "cd '" + folder_.string() + "' && timeout 300 env " + environment_ +
                             " '" GODWIT_SHELL_SOURCE_DIR "/tools/supervise' " + options + " -- " + command +
                             " >out 2>err </dev/null";
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(folder_ / "out"), read_file(folder_ / "err")};
  }
  // A script that appends its arguments to the file `starts` and then runs `body`.
  std::string script(const std::string& body) const {
    write_file(folder_ / "script", "echo \"$@\" >> starts\n" + body + "\n");
    return "sh script ";
  }
  std::string starts() const { return read_file(folder_ / "starts"); }
  std::pair<std::string, std::string> remains() const {
    return {results(metrics()), read_file(run_dir() / "weights.safetensors")};
  }

  const std::string train_ = "'" GODWIT_SHELL_BINARY_DIR
      "/train_resnet' --data data"
      " --optimizer birder --nodes 2 --batch 4 --epochs 20 --max-steps 300 --set log_every=1";
  static constexpr const char* kResumes = " --run-dir run --checkpoint-every 10 --resume auto";
};

// The first two starts are killed. The result is bit-identical to a run that was never killed.
TEST_F(Supervise, ContinuesARunThatDies) {
  ASSERT_EQ(supervise("", train_ + kResumes).exit_code, 0);
  const auto whole = remains();
  fs::remove_all(run_dir());
  const std::string dies = script("case $(wc -l < starts) in 1) set -- " + signal_after(50, "KILL") +
                                  "\"$@\";; 2) set -- " + signal_after(150, "KILL") + "\"$@\";; esac\nexec \"$@\"");
  const Outcome outcome = supervise("--delay 0.1", dies + train_ + kResumes);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(remains() == whole);
  const std::string all = starts();
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 3) << all;
  EXPECT_THAT(outcome.err, HasSubstr("supervise: exit code 137; starting again from step "));
  EXPECT_THAT(outcome.err, HasSubstr("(restart 1 of 3)"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("(restart 2 of 3)"))) << "a new checkpoint restarts the count";
}

// A process of mpirun is killed in the first start. The result is bit-identical to a run with threads.
TEST_F(Supervise, ContinuesUnderMpirunAfterAKilledRank) {
  if (const std::string reason = no_mpirun(); !reason.empty()) GTEST_SKIP() << reason;
  ASSERT_EQ(supervise("", train_ + kResumes).exit_code, 0);
  const auto whole = remains();
  fs::remove_all(run_dir());
  const std::string dies =
      script("[ $(wc -l < starts) -gt 1 ] || set -- " + signal_after(50, "KILL") + "\"$@\"\nexec \"$@\"");
  const std::string one = " -np 1 ";
  const Outcome outcome = supervise("--delay 0.1", "mpirun --allow-run-as-root --oversubscribe" + one + train_ +
                                                       kResumes + " :" + one + dies + train_ + kResumes);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(remains() == whole);
  const std::string all = starts();
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 2) << all;
  EXPECT_THAT(outcome.err, HasSubstr("supervise: exit code 137; starting again from step "));
  EXPECT_THAT(outcome.err, HasSubstr("': rank 1 on "));
}

TEST_F(Supervise, GivesUpWithoutProgress) {
  const Outcome outcome = supervise("--delay 0 --restarts 2", script("exit 7") + kResumes);
  EXPECT_EQ(outcome.exit_code, 7);
  const std::string start = "--run-dir run --checkpoint-every 10 --resume auto\n";
  EXPECT_EQ(starts(), start + start + start);
  EXPECT_THAT(outcome.err, HasSubstr("exit code 7; giving up after 2 restarts in a row without a new checkpoint"));
}

// mpirun may hang after its processes on this host have ended.
TEST_F(Supervise, KillsALauncherThatHangs) {
  const std::string lines = "sleep 1\nexec sleep 3\n";
  write_file(folder_ / "mpirun", "#!/bin/sh\n" + lines);
  fs::permissions(folder_ / "mpirun", fs::perms::owner_all);
  const std::string options = "--restarts 0 --patience 0.3";
  Outcome outcome = supervise(options, std::string("./mpirun") + kResumes);
  EXPECT_EQ(outcome.exit_code, 137);
  EXPECT_THAT(outcome.err,
              HasSubstr("mpirun still runs 0.3 s after its processes on this host have ended; killing it"));
  outcome = supervise(options, script(lines) + kResumes);  // without mpirun the command may run on alone
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

TEST_F(Supervise, DoesNotRepeatAWrongCommand) {
  Outcome outcome = supervise("", train_ + kResumes + " --lr much");
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 2) << outcome.err;
  EXPECT_THAT(outcome.err, EndsWith("\nsupervise: exit code 2: the command is wrong, or does not fit the run in its "
                                    "folder; it is not started again\n"));
  write_file(folder_ / "never.json", R"({"checkpoint": {"every": 0, "keep": 3}})");
  for (const std::string command :
       {"--run-dir run --checkpoint-every 10", "--run-dir run --resume auto", "--checkpoint-every 10 --resume auto",
        "--run-dir run --checkpoint-every 10 --resume run", "--run-dir run --checkpoint-every 0 --resume auto",
        "--run-dir run --checkpoint-every 0min --resume auto",
        "--run-dir run --checkpoint-every 10 --resume auto --set checkpoint.every=0",
        "--run-dir run --config never.json --resume auto"}) {
    outcome = supervise("", train_ + " " + command);
    EXPECT_EQ(outcome.exit_code, 2) << command;
    EXPECT_THAT(outcome.err,
                HasSubstr("the command needs --run-dir DIR, --checkpoint-every N|Nmin above 0 and --resume auto"));
  }
  outcome = supervise("--hosts ,", std::string("./nothing") + kResumes);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--hosts: expects names of hosts"));
  for (const std::string probe : {"--probe ''", "--probe '\"'", "--probe 'no-such-program {host}'"}) {
    outcome = supervise("--hosts a " + probe, std::string("./nothing") + kResumes);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.err, HasSubstr("supervise: error: --probe"));
  }
  outcome = supervise("", std::string("./nothing") + kResumes);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("cannot be started"));
}

// The disk of config.json is missing at the first restart. A restart cannot repair a file with wrong content.
TEST_F(Supervise, RestartsARunWhoseConfigurationCannotBeRead) {
  const fs::path config = run_dir() / "config.json", kept = run_dir() / "kept.json";
  ASSERT_EQ(supervise("", train_ + kResumes).exit_code, 0);
  fs::rename(config, kept);
  fs::create_symlink("gone/kept.json", config);
  const std::string mounts = script("[ $(wc -l < starts) -eq 1 ] || ln -sfn . run/gone\nexec \"$@\"");
  Outcome outcome = supervise("--delay 0", mounts + train_ + " --max-steps 310" + kResumes);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("run/config.json: cannot be read (No such file or directory)"));
  EXPECT_THAT(outcome.err, HasSubstr("supervise: exit code 1; starting again from step 300 "));
  EXPECT_EQ(metrics().back()["step"], 310);
  fs::remove(config);
  write_file(config, "{");
  outcome = supervise("", train_ + kResumes);
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("run/config.json: is not valid JSON: "));
  EXPECT_THAT(outcome.err, HasSubstr("supervise: exit code 2: the command is wrong, or does not fit the run in its "));
}

TEST_F(Supervise, FindsTheIntervalOfCheckpointsInAllOptions) {
  write_file(folder_ / "often.json", R"({"checkpoint": {"every": "10min"}})");
  for (const std::string interval : {"--set checkpoint.every=10", "--set=checkpoint.every=10", "--config often.json",
                                     "--checkpoint-every=0 --set checkpoint.every=5min",
                                     "--checkpoint-every=0 --set checkpoint={\\\"every\\\":10}"}) {
    const Outcome outcome = supervise("", script("exit 0") + "--run-dir run --resume auto " + interval);
    EXPECT_EQ(outcome.exit_code, 0) << interval << ": " << outcome.err;
  }
  for (const std::string wrong : {"--config gone.json", "--set checkpoint=often"}) {
    const Outcome outcome = supervise("", script("exit 0") + "--run-dir run --resume auto " + wrong);
    EXPECT_EQ(outcome.exit_code, 2) << wrong;
    EXPECT_THAT(outcome.err, HasSubstr(wrong + ": "));
  }
}

// A signal to the supervisor: the run saves a checkpoint, ends, and is not started again.
TEST_F(Supervise, PassesSignalsOn) {
  ASSERT_EQ(supervise("", train_ + kResumes).exit_code, 0);
  const auto whole = remains();
  fs::remove_all(run_dir());
  environment_ = signal_after(50, "TERM");
  Outcome outcome = supervise("", train_ + " --run-dir run --checkpoint-every 1000 --resume auto");
  EXPECT_EQ(outcome.exit_code, 143) << outcome.err;
  EXPECT_THAT(outcome.err, Not(HasSubstr("starting again")));
  EXPECT_LT(metrics().back()["step"], 300);
  environment_.clear();
  outcome = supervise("", train_ + kResumes);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(remains() == whole);
}

TEST_F(Supervise, StopsMpirunWithASignalThatReachesTheRanks) {
  write_file(folder_ / "mpirun",
             "#!/bin/sh\ntrap 'echo USR2 >> got; exit 143' USR2\ntrap 'echo TERM >> got; exit 1' TERM\n"
             "kill -TERM $PPID\nwhile true; do sleep 0.05; done\n");
  fs::permissions(folder_ / "mpirun", fs::perms::owner_all);
  const Outcome outcome = supervise("", std::string("./mpirun") + kResumes);
  EXPECT_EQ(outcome.exit_code, 143) << outcome.err;
  EXPECT_EQ(read_file(folder_ / "got"), "USR2\n");
}

// The program passes on the first of several signals at once, and a signal more than a second later.
TEST_F(Supervise, SignalsAtOnceCountAsOne) {
  const std::string traps = "trap 'echo TERM >> got' TERM\ntrap 'echo HUP >> got' HUP\ntrap 'echo INT >> got' INT\n";
  const Outcome outcome =
      supervise("", script(traps + "kill -HUP $PPID; kill -TERM $PPID; kill -INT $PPID\nsleep 1.2\n"
                                   "kill -INT $PPID\nfor i in 1 2 3 4 5; do sleep 0.1; done\nexit 7") + kResumes);
  EXPECT_EQ(outcome.exit_code, 7) << outcome.err;
  EXPECT_EQ(read_file(folder_ / "got"), "HUP\nINT\n");
}

TEST_F(Supervise, PassesSigusr2On) {
  const Outcome outcome = supervise("", script("trap 'echo USR2 >> got; exit 143' USR2\nkill -USR2 $PPID\n"
                                               "for i in $(seq 50); do sleep 0.1; done\nexit 7") + kResumes);
  EXPECT_EQ(outcome.exit_code, 143) << outcome.err;
  EXPECT_EQ(read_file(folder_ / "got"), "USR2\n");
}

// With nohup, the supervisor and the run ignore SIGHUP.
TEST_F(Supervise, KeepsAnIgnoredSighup) {
  environment_ = "nohup";
  const Outcome outcome =
      supervise("", script("kill -HUP $PPID\nkill -HUP $$\nfor i in 1 2 3; do sleep 0.1; done\nexit 7") + kResumes);
  EXPECT_EQ(outcome.exit_code, 7) << outcome.err;
  EXPECT_THAT(outcome.err, Not(HasSubstr("interrupted")));
}

TEST_F(Supervise, StartsWithTheHostsThatAnswer) {
  const std::string options =
      "--delay 0.1 --restarts 1 --hosts a,b,c,d --min-hosts 2 --workers-per-node 2 --probe 'test -e up/{host}' ";
  const std::string words = "{hosts} {nodes} {ranks}", line = "a:2,c:2,d:2 3 6";
  for (const char* host : {"a", "c", "d"}) write_file(folder_ / "up" / host, "");
  Outcome outcome = supervise(options, script("exit 0") + words + kResumes);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(starts(), line + kResumes + "\n");
  // A run of four hosts loses one. Three hosts cannot divide the samples of a step equally, so two are used.
  ASSERT_EQ(supervise("", train_ + " --nodes 4" + kResumes).exit_code, 0);
  outcome = supervise(options, train_ + " --nodes {nodes} --max-steps 310" + kResumes);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("16 samples per step, which 3 workers cannot divide"));
  EXPECT_THAT(outcome.err, HasSubstr("the run refuses 3 hosts; starting it with 2"));
  EXPECT_THAT(outcome.out, HasSubstr("2 workers instead of 4"));
  // One host is too few. Another host comes up while the supervisor waits.
  fs::remove(folder_ / "starts");
  fs::remove_all(folder_ / "up");
  write_file(folder_ / "up/b", "");
  environment_ =
      "sh -c '( until grep -q \"1 of 4 hosts answer, 2 are needed\" err; do sleep 0.01; done; touch up/d ) & exec "
      "\"$@\"' sh";
  outcome = supervise(options, script("exit 0") + words + kResumes);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(starts(), std::string("b:2,d:2 2 4") + kResumes + "\n");
}

}  // namespace supervise_test
}  // namespace godwit
