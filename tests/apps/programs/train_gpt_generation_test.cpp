// train_gpt --generate.
#include "engine/safetensors.h"
#include "tests/apps/programs/train_gpt.h"
#include "tests/mpirun.h"

namespace godwit {
namespace train_gpt_generation_test {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

class TrainGptGeneration : public TrainGpt {};

TEST_F(TrainGptGeneration, GeneratesFromASavedFolder) {
  save_model("first", "--max-steps 40 --lr 1e-2");
  const auto generate = [&](const std::string& flags) {
    const Outcome outcome = train("--init-weights first --set generate.tokens=12 " + flags, "");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    return outcome.out;
  };
  const std::string greedy = generate("--generate 'anna lives' --temperature 0");
  EXPECT_TRUE(greedy.starts_with("anna lives")) << greedy;
  EXPECT_EQ(greedy.size(), std::string("anna lives").size() + 12 + 1) << greedy;
  EXPECT_EQ(generate("--generate 'anna lives' --temperature 0 --set seed=2"), greedy);
  EXPECT_EQ(generate("--generate 'anna lives' --top-k 1"), greedy);
  for (const std::string flag :
       {"--nodes 2", "--optimizer birder", "--data text.txt", "--run-dir run", "--resume auto --run-dir run"})
    EXPECT_NE(train("--init-weights first --generate anna " + flag, "")
                  .err.find(flag.substr(0, flag.find(' ')) + ": --generate does not train; leave it out"),
              std::string::npos)
        << flag;
  const std::string warm = generate("--generate 'anna lives' --temperature 3");
  EXPECT_EQ(generate("--generate 'anna lives' --temperature 3"), warm);
  EXPECT_NE(generate("--generate 'anna lives' --temperature 3 --set seed=2"), warm);
  EXPECT_FALSE(fs::exists(run_dir()));
}

// The file of the weights is sparse and needs no disk space.
TEST_F(TrainGptGeneration, RefusesToGenerateFromAModelThatExceedsTheMemory) {
  save_model("first");
  constexpr int64_t kWidth = 16, kLarge = 1 << 16;
  json config = json::parse(read_file(folder_ / "first/config.json")), header;
  config["n_embd"] = kLarge;
  int64_t bytes = 0;
  for (const auto& [name, tensor] : load_safetensors(folder_ / "first/model.safetensors")) {
    const bool embedding = name.ends_with("wte.weight") || name.ends_with("wpe.weight");
    json shape = json::array();
    int64_t numel = 1;
    for (int i = 0; i < tensor.shape().rank(); ++i) {
      shape.push_back(embedding && i == 0 ? tensor.dim(i) : tensor.dim(i) / kWidth * kLarge);
      numel *= shape.back().get<int64_t>();
    }
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {bytes, bytes + 4 * numel}}};
    bytes += 4 * numel;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // aligned tensors are not copied
  const uint64_t length = text.size();
  write_file(folder_ / "first/config.json", config.dump());
  write_file(folder_ / "first/model.safetensors", std::string(reinterpret_cast<const char*>(&length), 8) + text);
  fs::resize_file(folder_ / "first/model.safetensors", 8 + length + static_cast<uint64_t>(bytes));
  const Outcome outcome = train("--init-weights first --generate anna", "");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("first: "));
  EXPECT_THAT(outcome.err, HasSubstr(" parameters take 412 GB, and this machine has "));
}

TEST_F(TrainGptGeneration, AContinuationThatCannotBePrintedEndsTheProgram) {
  save_model("first");
  const Outcome outcome =
      train("--init-weights first --generate anna --set generate.tokens=1000000000", "", ">/dev/full 2>err </dev/null");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err, "train_gpt: standard output cannot be written\n");
}

// The other rank waits for longer than timeout_s.
TEST_F(TrainGptGeneration, RanksWaitForALongContinuation) {
  if (const std::string reason = no_mpirun(); !reason.empty()) GTEST_SKIP() << reason;
  save_model("first");
  environment_ = "ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 mpirun --allow-run-as-root --oversubscribe -np 2";
  const Outcome outcome =
      train("--init-weights first --generate anna --set generate.tokens=180000 --set timeout_s=5", "");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\nanna")) << outcome.out.substr(0, 100);
}

// Matches transformers' generate(). characters.json lists the characters by id.
TEST_F(TrainGptGeneration, AContinuationEndsAtTheTokensOfTheFolder) {
  save_model("first", "--max-steps 40 --lr 1e-2");
  const json characters = json::parse(read_file(folder_ / "first/characters.json"));
  const auto space = std::find(characters.begin(), characters.end(), " ") - characters.begin();
  const auto generated = [&] {
    const Outcome outcome = train("--init-weights first --set generate.tokens=40 --generate 'anna sees' --top-k 1", "");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  };
  const std::string whole = generated();
  const size_t end = whole.find(' ', std::string("anna sees").size());
  ASSERT_NE(end, std::string::npos) << whole;
  json config = json::parse(read_file(folder_ / "first/config.json"));
  config["eos_token_id"] = space;
  write_file(folder_ / "first/config.json", config.dump());
  EXPECT_EQ(generated(), whole.substr(0, end) + "\n");
  write_file(folder_ / "first/generation_config.json", json{{"eos_token_id", json::array()}}.dump());
  EXPECT_EQ(generated(), whole);
  write_file(folder_ / "first/generation_config.json", json{{"eos_token_id", {space, 1}}}.dump());
  EXPECT_EQ(generated(), whole.substr(0, end) + "\n");
  write_file(folder_ / "first/generation_config.json", R"({"eos_token_id": "x"})");
  const Outcome wrong = train("--init-weights first --generate 'anna'", "");
  EXPECT_THAT(wrong.err,
              HasSubstr("first/generation_config.json: eos_token_id must be an integer or a list of integers"));
}

TEST_F(TrainGptGeneration, AFineTunedFolderKeepsTheSettingsOfGeneration) {
  save_model("first", "--max-steps 1");
  json config = json::parse(read_file(folder_ / "first/config.json"));
  config["pad_token_id"] = 3;
  write_file(folder_ / "first/config.json", config.dump());
  const std::string generation = R"({"temperature": 0.6})", special = R"({"eos_token": "a"})";
  write_file(folder_ / "first/generation_config.json", generation);
  write_file(folder_ / "first/special_tokens_map.json", special);
  const auto fine_tune = [&](const std::string& to, const std::string& flags) {
    const Outcome outcome =
        train("--data text.txt --init-weights first --context 16 --max-steps 1 " + flags, "--run-dir run");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    fs::rename(run_dir() / "model", folder_ / to);
    fs::remove_all(run_dir());
  };
  fine_tune("second", "");
  EXPECT_EQ(json::parse(read_file(folder_ / "second/config.json"))["pad_token_id"], 3);
  EXPECT_EQ(read_file(folder_ / "second/generation_config.json"), generation);
  EXPECT_EQ(read_file(folder_ / "second/special_tokens_map.json"), special);
  fine_tune("third", "--tokenizer characters");
  EXPECT_FALSE(fs::exists(folder_ / "third/special_tokens_map.json")) << "of another tokenizer";
}

TEST_F(TrainGptGeneration, GeneratesOnlyTokensOfTheTokenizer) {
  save_model("first");
  write_file(folder_ / "few.txt", "anna sees anna .\n" + std::string(200, 'a'));
  save_model("few", "--data few.txt --max-steps 1 --batch 1");
  const std::string flags = " --generate 'anna' --temperature 100 --set generate.tokens=100";
  const Outcome outcome = train("--init-weights first --tokenizer few" + flags, "");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find_first_not_of("anse .\n"), std::string::npos) << outcome.out;
  const std::string notice = "notice: the initial weights in first were trained with another tokenizer; this run uses "
                             "the character tokenizer, 7 characters\n";
  EXPECT_EQ(outcome.err, "train_gpt: " + notice);
  const Outcome training = train("--init-weights first --tokenizer few --data few.txt --context 16 --max-steps 1 "
                                 "--batch 1", "--run-dir run");
  EXPECT_TRUE(training.out.starts_with(notice)) << training.out << training.err;
  const Outcome more = train("--init-weights few --tokenizer first" + flags, "");
  EXPECT_THAT(more.err, HasSubstr("(vocab_size); use the tokenizer of the weights"));
}

TEST_F(TrainGptGeneration, KeepsTabs) {
  std::string table;
  for (int i = 0; i < 100; ++i) table += "a\tb\r\n";
  write_file(folder_ / "table.txt", table);
  done("--data table.txt");
  const std::string samples = read_file(run_dir() / "samples.txt");
  EXPECT_THAT(samples, testing::AllOf(HasSubstr("\t"), testing::Not(HasSubstr("\\t"))));
  const Outcome outcome = train("--init-weights run/model --set generate.tokens=1 --generate '\ta\tb\r\n\t\n'", "");
  EXPECT_TRUE(outcome.out.starts_with("\ta\tb\\r\n\t\n")) << outcome.err << outcome.out;
}

TEST_F(TrainGptGeneration, KeepsLeadingLineFeeds) {
  save_model("first");
  const Outcome outcome = train("--init-weights first --set generate.tokens=1 --generate '\n\nanna'", "");
  EXPECT_TRUE(outcome.out.starts_with("\n\nanna")) << outcome.err << outcome.out;
}

}  // namespace train_gpt_generation_test
}  // namespace godwit
