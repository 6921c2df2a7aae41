#include "apps/train/run_consistency.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "apps/config/build_identity.h"
#include "comm/transport/local.h"
#include "tests/support.h"

namespace godwit::apps {
namespace run_consistency_test {

namespace fs = std::filesystem;

TEST(Consistency, NamesAHostWithAnotherBuild) {
  const auto check_builds = [](const std::string& of_rank_2) {
    run_local({3, 1},
              [&](Communicator& comm) { check_same_build(*comm.world, comm.rank == 2 ? of_rank_2 : "sources 1"); });
  };
  check_builds("sources 1");
  const std::string error = error_of([&] { check_builds("sources 2"); });
  for (const char* words : {"hosts run different builds: rank 2 on host ", " has sources 2; rank 0 on host ",
                            " has sources 1; install the same build on all hosts"})
    EXPECT_NE(error.find(words), std::string::npos) << error;
}

// The function that cmake/SourceHash.cmake writes for these sources.
std::string hash_of(const TempFolder& folder) {
  const std::string line = "cmake -D 'SOURCE=" + folder.str() +
                           "' -D 'FOLDERS=apps;comm' -D 'OUT=" + (folder / "hash.cpp") +
                           "' -P '" GODWIT_SHELL_SOURCE_DIR "/cmake/SourceHash.cmake'";
  EXPECT_EQ(std::system(line.c_str()), 0);
  const Bytes text = read(folder / "hash.cpp");
  return {text.begin(), text.end()};
}

TEST(BuildIdentity, ChangesWithEverySource) {
  const TempFolder folder;
  const auto set = [&](const std::string& name, const std::string& text) {
    write(folder / name, Bytes(text.begin(), text.end()));
  };
  set("apps/main.cpp", "1");
  set("comm/wire/codes.h", "1");
  set("tests/other.cpp", "1");
  const std::string before = hash_of(folder);
  EXPECT_NE(before.find("return \""), std::string::npos) << before;
  set("tests/other.cpp", "2");
  EXPECT_EQ(hash_of(folder), before);
  set("comm/wire/codes.h", "2");
  EXPECT_NE(hash_of(folder), before);
  set("comm/wire/codes.h", "1");
  EXPECT_EQ(hash_of(folder), before);
  set("apps/main.cpp", "2");
  EXPECT_NE(hash_of(folder), before);
  set("apps/main.cpp", "1");
  fs::rename(folder / "comm/wire/codes.h", folder / "comm/wire/code.h");
  EXPECT_NE(hash_of(folder), before);
}

TEST(BuildIdentity, HasTheHashOfTheSourcesAndNoInstructionSet) {
  const std::string identity = build_identity();
  EXPECT_EQ(identity.find(std::string("sources ") + source_hash() + ", "), 0u) << identity;
  EXPECT_EQ(std::string(source_hash()).find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(std::string(source_hash()).size(), 12u);
  EXPECT_EQ(identity.find("avx"), std::string::npos) << identity;
}

}  // namespace run_consistency_test
}  // namespace godwit::apps
