// scripts/gpu_check: its report of a test program that fails, crashes and hangs, and the archive at the end.
// scripts/build and scripts/setup: their messages about folders, and the builds that they configure again.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/apps/programs/program_test.h"

namespace godwit {
namespace gpu_check_test {

namespace fs = std::filesystem;
using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::Not;

// A fake cuda_tests: prints like GoogleTest, and runs the tests of the filter in the file of flags.
constexpr const char* kProgram = R"py(#!/usr/bin/env python3
import os, signal, sys, time
if sys.argv[1] == "--gtest_list_tests":
    print("A.\n  Passes\n  Crashes\nB.\n  Fails\n  Hangs\nC.\n  Passes")
    sys.exit()
wanted = open(sys.argv[1].removeprefix("--gtest_flagfile=")).read().strip().removeprefix("--gtest_filter=").split(":")
for name in wanted:
    print("[ RUN      ]", name, flush=True)
    if name == "A.Crashes":
        os.abort()
    if name == "B.Hangs":  # and fails when it is stopped
        signal.signal(signal.SIGTERM, lambda *_: (print("[  FAILED  ] B.Hangs (1 ms)", flush=True), sys.exit(1)))
        time.sleep(60)
    print("[  FAILED  ]" if name == "B.Fails" else "[       OK ]", name, "(1 ms)", flush=True)
)py";

// A command that runs the tests of `program` as cuda_tests.
std::string command_for(const TempFolder& folder, const std::string& program) {
  write_file(folder / "build/cuda_tests", program);
  fs::permissions(folder / "build/cuda_tests", fs::perms::owner_all);
  return "timeout 120 env --default-signal=HUP '" GODWIT_SHELL_SOURCE_DIR
         "/scripts/gpu_check' --emulated --stages tests --build '" +
         (folder / "build") + "' --out '" + (folder / "gpu.json") + "' --seconds 400 --silence 3 --jobs 1 >'" +
         (folder / "out") + "' 2>&1 </dev/null";
}

TEST(GpuCheck, StartsNoTestAfterASignal) {
  const TempFolder folder;
  const std::string program = R"py(#!/usr/bin/env python3
import pathlib, sys, time
if sys.argv[1] == "--gtest_list_tests":
    print("A.\n  First\n  Second\n  Third")
    sys.exit()
flags = open(sys.argv[1].removeprefix("--gtest_flagfile=")).read().strip()
for name in flags.removeprefix("--gtest_filter=").split(":"):
    with open(pathlib.Path(__file__).parent / "begun", "a") as begun:
        print(name, file=begun)
    print("[ RUN      ]", name, flush=True)
    time.sleep(2)
)py";
  const std::string begun = folder / "build/begun";
  for (const std::string signal : {"TERM", "HUP"}) {
    fs::remove(begun);
    const int status = std::system((command_for(folder, program) + " & pid=$!; until [ -s '" + begun +
                                    "' ]; do sleep 0.1; done; kill -" + signal + " $pid; wait $pid")
                                       .c_str());
    EXPECT_EQ(WEXITSTATUS(status), 1) << signal << ": " << read_file(folder / "out");
    EXPECT_EQ(read_file(begun), "A.First\n");
    EXPECT_EQ(nlohmann::json::parse(read_file(folder / "gpu.json"))["interrupted"], true);
    fs::remove(folder / "gpu.json");
  }
}

TEST(GpuCheck, RefusesAFileThatCannotBeWrittenBeforeTheFirstStage) {
  const TempFolder folder;
  write_file(folder / "gpu.json/file", "a folder in place of the file");
  const int status = std::system(command_for(folder, kProgram).c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2);
  const std::string out = read_file(folder / "out");
  EXPECT_THAT(out, HasSubstr("gpu_check: cannot write " + (folder / "gpu.json") + " (Is a directory)"));
  EXPECT_THAT(out, Not(HasSubstr("== tests")));
}

TEST(GpuCheck, ContinuesAfterFailuresAndEndsWithAnArchive) {
  const TempFolder folder;
  const int status = std::system(command_for(folder, kProgram).c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1) << read_file(folder / "out");
  const auto report = nlohmann::json::parse(read_file(folder / "gpu.json"));
  EXPECT_EQ(report["result"], "failed");
  const auto& found = report["stages"]["tests"]["programs"]["cuda_tests"];
  EXPECT_THAT(found["failed"].get<std::vector<std::string>>(),
              ElementsAre("A.Crashes: exit status -6", "B.Fails", "B.Hangs: no output for 3 s"));
  EXPECT_EQ(found["passed"], 2);
  const std::string list = "tar -tzf '" + (folder / "gpu.tar.gz") + "' >'" + (folder / "list") + "'";
  ASSERT_EQ(std::system(list.c_str()), 0);
  EXPECT_EQ(read_file(folder / "list"), "gpu.json\nlogs/\nlogs/cuda_tests.log\n");
}

// Runs a copy of scripts/build and scripts/setup in the folder, on a system that has no package and installs none.
int run_script(const TempFolder& folder, const std::string& script) {
  fs::create_directory(folder / "scripts");
  for (const char* name : {"build", "setup"})
    fs::copy_file(fs::path(GODWIT_SOURCE_DIR) / "scripts" / name, fs::path(folder / "scripts") / name,
                  fs::copy_options::overwrite_existing);
  for (const std::string program : {"bin/apt-get", "bin/dpkg-query", "bin/id"}) {
    write_file(folder / program, "#!/bin/sh\necho 0\n");
    fs::permissions(folder / program, fs::perms::owner_all);
  }
  const std::string line = "cd '" + folder.str() + "' && PATH=\"$PWD/bin:$PATH\" scripts/" + script + " >out 2>&1";
  return WEXITSTATUS(std::system(line.c_str()));
}

TEST(Scripts, NameTheFolderThatCannotBeCreated) {
  const TempFolder folder;
  write_file(folder / "build", "a file in place of the folder");
  EXPECT_EQ(run_script(folder, "build release"), 1);
  EXPECT_THAT(read_file(folder / "out"), HasSubstr("cannot write to " + (folder / "build/release") + " (mkdir: "));
  EXPECT_EQ(run_script(folder, "setup"), 1);
  EXPECT_THAT(read_file(folder / "out"), HasSubstr("cannot write to " + (folder / "build") + " (mkdir: "));
}

TEST(Scripts, OnlyPackagesOfTheBuildConfigureAgain) {
  const TempFolder folder;
  write_file(folder / "build/release/build.ninja", "");
  for (const char* option : {"--docs", "--fuzz", "--report"}) {
    EXPECT_EQ(run_script(folder, std::string("setup ") + option), 0) << read_file(folder / "out");
    EXPECT_TRUE(fs::exists(folder / "build/release/build.ninja")) << option;
  }
  EXPECT_EQ(run_script(folder, "setup"), 0) << read_file(folder / "out");
  EXPECT_FALSE(fs::exists(folder / "build/release/build.ninja"));
}

}  // namespace gpu_check_test
}  // namespace godwit
