// Starts a training program in the same way as a user, in a temporary folder, and reads its output files.
#pragma once
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support.h"

namespace godwit {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline void write_file(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

struct Outcome {
  int exit_code;
  std::string out, err;
};

// Prefix of a command. The command receives the signal `seconds` after run/metrics.jsonl has `lines` lines. The file
// `signaled` is then created.
inline std::string signal_after(int lines, const std::string& signal, double seconds = 0) {
  return "sh -c '( until [ $(wc -l < run/metrics.jsonl) -ge " + std::to_string(lines) +
         " ] || ! kill -0 $$; do sleep 0.01; done; sleep " + std::to_string(seconds) + "; kill -" + signal +
         " $$; touch signaled ) >/dev/null 2>&1 & exec \"$@\"' sh ";
}

// Prefix of a command that runs with a fault of tests/apps/programs/preload/faulty_system.cpp. LD_PRELOAD must not
// contain spaces, so the loader finds the library by its name.
inline std::string faulty_system(const std::string& fault) {
  return "env ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0:verify_asan_link_order=0 LD_PRELOAD=faulty_system.so "
         "LD_LIBRARY_PATH='" GODWIT_SHELL_BINARY_DIR "'\"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\" '" +
         fault + "' ";
}

// Losses and evaluations of a run with all digits, without times.
inline std::string results(const std::vector<nlohmann::json>& lines) {
  std::string text;
  for (const nlohmann::json& line : lines) {
    nlohmann::json kept = nlohmann::json::object();
    for (const auto& [key, value] : line.items())
      if (!key.ends_with("_s")) kept[key] = value;
    text += kept.dump() + "\n";
  }
  return text;
}

class ProgramTest : public testing::Test {
 protected:
  // `base`: default flags; later flags override them.
  ProgramTest(std::string program, std::string base) : program_(std::move(program)), base_(std::move(base)) {}

  std::filesystem::path run_dir() const { return folder_ / "run"; }

  Outcome train(const std::string& flags) const { return train(flags, base_); }
  Outcome train(const std::string& flags, const std::string& base,
                const std::string& streams = ">out 2>err </dev/null") const {
    const std::string command = "cd '" + folder_.string() + "' && timeout 300 env " + environment_ +
                                " '" GODWIT_SHELL_BINARY_DIR "/" + program_ + "' " + base + " " + flags + " " + streams;
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(folder_ / "out"), read_file(folder_ / "err")};
  }

  // Trains and expects success. Leaves the run directory for inspection.
  Outcome done(const std::string& flags) {
    std::filesystem::remove_all(run_dir());
    const Outcome outcome = train(flags);
    EXPECT_EQ(outcome.exit_code, 0) << flags << ": " << outcome.err;
    EXPECT_EQ(outcome.err, "") << flags;
    return outcome;
  }

  // Expects one line on stderr that contains each of `words`, a failing exit code, and no run directory.
  void expect_refused(const std::string& flags, const std::vector<std::string>& words) {
    const Outcome outcome = train(flags);
    EXPECT_TRUE(outcome.exit_code == 1 || outcome.exit_code == 2) << flags << ": exit code " << outcome.exit_code;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << flags << ": " << outcome.err;
    for (const std::string& word : words)
      EXPECT_NE(outcome.err.find(word), std::string::npos) << flags << ": " << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(run_dir())) << flags << " left a run directory";
  }

  // Moves the run directory to first/ and repeats the run with its config.json. Results and `files` must be the same.
  void expect_config_repeats_the_run(const std::vector<std::string>& files) {
    const std::filesystem::path first = folder_ / "first";
    const std::string expected = results(metrics());
    std::filesystem::remove_all(first);
    std::filesystem::rename(run_dir(), first);
    const Outcome again = train("--config first/config.json", "--run-dir run");
    ASSERT_EQ(again.exit_code, 0) << again.err;
    EXPECT_EQ(results(metrics()), expected);
    for (const std::string& file : files) EXPECT_EQ(read_file(run_dir() / file), read_file(first / file)) << file;
  }

  std::vector<nlohmann::json> metrics() const {
    std::vector<nlohmann::json> lines;
    std::ifstream in(run_dir() / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  std::string environment_;
  const std::string program_, base_;
  TempFolder scratch_;
  const std::filesystem::path folder_ = scratch_.str();
};

}  // namespace godwit
