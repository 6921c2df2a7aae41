// Replays the stored inputs of all fuzz targets: seeds, and inputs that once failed.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "tests/fuzz/target.h"
#include "tests/support.h"

namespace godwit::fuzz {
namespace corpus_test {

namespace fs = std::filesystem;

const fs::path kCorpus = fs::path(GODWIT_SOURCE_DIR) / "tests/fuzz/corpus";

TEST(Corpus, EveryTargetHasInputs) {
  std::set<std::string> names, folders;
  for (const Target& target : all_targets()) EXPECT_TRUE(names.insert(target.name).second) << target.name;
  for (const auto& entry : fs::directory_iterator(kCorpus)) folders.insert(entry.path().filename().string());
  EXPECT_EQ(names, folders);
}

// Each target reads at least one of its inputs and refuses others.
TEST(Corpus, InputsGiveValuesOrErrors) {
  for (const Target& target : all_targets()) {
    int read_inputs = 0;
    for (const auto& entry : fs::directory_iterator(kCorpus / target.name))
      EXPECT_NO_THROW(read_inputs += run(target, read(entry.path().string()))) << entry.path();
    EXPECT_GT(read_inputs, 0) << target.name;
  }
}

// Inputs that every target must survive.
TEST(Corpus, EmptyAndUniformInputs) {
  for (const Target& target : all_targets())
    for (const size_t size : {0, 1, 9, 5000})
      for (const uint8_t value : {0x00, 0x20, 0x7f, 0xff})
        EXPECT_NO_THROW(run(target, Bytes(size, value))) << target.name << ", " << size << " bytes " << int{value};
}

}  // namespace corpus_test
}  // namespace godwit::fuzz
