#include "models/weights_folder.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/safetensors.h"
#include "engine/text_file.h"
#include "models/gpt2.h"
#include "tests/support.h"

namespace godwit {
namespace weights_folder_test {

using testing::ElementsAre;
namespace fs = std::filesystem;

Gpt2Config small() { return {.vocab_size = 11, .n_positions = 8, .n_embd = 8, .n_layer = 2, .n_head = 2}; }

std::set<std::string> files_in(const std::string& folder) {
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    names.insert(entry.path().filename().string());
  return names;
}

// Matrices of 3·8·8 values: 768 bytes; 4·8·8 values: 1,024 bytes.
TEST(WeightsFolder, ALargeModelHasSeveralFilesAndAnIndex) {
  constexpr int64_t kLimit = 1000;
  const TempFolder folder;
  const Gpt2 model(small());
  const std::vector<Parameter> parameters = model.parameters();
  save_weights_file(folder.str(), parameters, kLimit);
  const auto index = nlohmann::json::parse(read_text_file(folder / "model.safetensors.index.json", 1, ""));
  int64_t total = 0;
  for (const Parameter& p : parameters) total += 4 * p.var.shape().numel();
  EXPECT_EQ(index["metadata"]["total_size"], total);
  const auto file_of = index["weight_map"].get<std::map<std::string, std::string>>();
  EXPECT_EQ(file_of.size(), parameters.size());
  std::set<std::string> files{"model.safetensors.index.json"};
  for (const auto& [name, file] : file_of) files.insert(file);
  EXPECT_EQ(files_in(folder.str()), files);
  const size_t count = files.size() - 1;
  EXPECT_EQ(file_of.at(parameters.front().name), detail::concat("model-00001-of-000", count, ".safetensors"));
  EXPECT_EQ(file_of.at(parameters.back().name), detail::concat("model-000", count, "-of-000", count, ".safetensors"));
  size_t tensors = 0;
  int64_t before = kLimit;  // bytes of the file before
  files.erase("model.safetensors.index.json");
  for (const std::string& file : files) {
    int64_t bytes = 0;
    const auto of_file = load_safetensors(folder / file);
    for (const auto& [name, tensor] : of_file) {
      EXPECT_EQ(file_of.at(name), file);
      bytes += tensor.bytes();
    }
    EXPECT_TRUE(bytes <= kLimit || of_file.size() == 1) << file << " has " << bytes << " bytes";
    EXPECT_GT(bytes + before, kLimit) << file << " and the file before could be one";
    before = bytes;
    tensors += of_file.size();
  }
  EXPECT_EQ(tensors, parameters.size());

  Gpt2Config other = small();
  other.seed = 7;
  const Gpt2 read(other);
  load_pretrained(folder.str(), read);
  const std::vector<Parameter> loaded = read.parameters();
  for (size_t i = 0; i < parameters.size(); ++i)
    EXPECT_TRUE(same_bits(loaded[i].var.value(), parameters[i].var.value())) << parameters[i].name;
}

TEST(WeightsFolder, ATensorWithAValueThatIsNotFiniteIsNamed) {
  const TempFolder folder;
  const Gpt2 model(small());
  const Parameter last = model.parameters().back();
  last.var.value().range(3, 1).fill(std::numeric_limits<double>::quiet_NaN());
  save_weights_file(folder.str(), model.parameters());
  EXPECT_EQ(error_of([&] { load_pretrained(folder.str(), Gpt2(small())); }),
            folder / "model.safetensors" + (": " + last.name) + " has a value that is infinite or NaN");
  const nn::DeferParameters deferred;
  EXPECT_NE(error_of([&] {
              const Gpt2 read(small());
              load_pretrained(folder.str(), read);
              for (const Parameter& p : read.parameters()) (void)p.var.value();
            }).find(last.name),
            std::string::npos);
}

TEST(WeightsFolder, AnotherNumberOfFilesReplacesTheEarlierOnes) {
  const TempFolder folder;
  const Gpt2 model(small());
  const auto save = [&](int64_t limit) { save_weights_file(folder.str(), model.parameters(), limit); };
  save_safetensors(folder / "model-of-mine.safetensors", {});
  save(4000);
  const std::set<std::string> few = files_in(folder.str());
  save(1000);
  EXPECT_GT(files_in(folder.str()).size(), few.size());
  save(4000);
  EXPECT_EQ(files_in(folder.str()), few);
  save(kWeightsFileBytes);
  EXPECT_THAT(files_in(folder.str()), ElementsAre("model-of-mine.safetensors", "model.safetensors"));
  save(4000);
  EXPECT_EQ(files_in(folder.str()), few) << "an old model.safetensors would be read in place of the index";
}

}  // namespace weights_folder_test
}  // namespace godwit
