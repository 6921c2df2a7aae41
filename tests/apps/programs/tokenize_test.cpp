// tokenize, run from the command line: shards, the tokenizer next to them, and rejection of invalid input.
#include <gmock/gmock.h>

#include "apps/config/build_identity.h"
#include "data/text/token_data.h"
#include "data/text/token_shard.h"
#include "tests/apps/programs/program_test.h"

namespace godwit {
namespace tokenize_test {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Tokenize : public ProgramTest {
 protected:
  Tokenize() : ProgramTest("tokenize", "") {}
  void SetUp() override {
    std::string story, lines;
    for (int i = 0; i < 300; ++i) story += "Line " + std::to_string(i) + " of the story is short.\n";
    for (int i = 0; i < 20; ++i) lines += "{\"text\": \"Document " + std::to_string(i) + " is short too.\"}\n";
    write_file(folder_ / "text" / "story.txt", story);
    write_file(folder_ / "text" / "lines.jsonl", lines);
  }
  std::string refusal(const std::string& flags) {
    const Outcome outcome = train(flags);
    EXPECT_EQ(outcome.exit_code, 1) << flags;
    return outcome.err;
  }
  std::string text_of(const data::TokenData& data, const data::TokenStream& stream) {
    std::vector<int32_t> ids(static_cast<size_t>(stream.size()));
    stream.read(0, ids);
    return data.tokenizer->decode(ids);
  }
};

TEST_F(Tokenize, PrintsItsVersion) {
  const Outcome outcome = train("--version");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out,
            detail::concat("tokenize (Godwit ", apps::version(), "), sources ", apps::source_hash(), "\n"));
}

TEST_F(Tokenize, TrainsATokenizerAndWritesShards) {
  const Outcome outcome = train("text --out shards --train-bpe 300 --validation 0.25 --shard-tokens 1000");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("tokenizer: byte-level BPE, 300 tokens"));
  EXPECT_THAT(outcome.out, HasSubstr("file 2 of 2"));
  EXPECT_TRUE(fs::exists(folder_ / "shards" / "train_000001.bin"));
  const data::TokenData data = data::load_token_data({.path = (folder_ / "shards").string()});
  const std::string training = text_of(data, data.train), validation = text_of(data, data.valid);
  EXPECT_TRUE(training.starts_with("Document 0 is short too.<|endoftext|>Document 1 is short too.<|endoftext|>"));
  EXPECT_THAT(training, HasSubstr("Document 15 is short too.<|endoftext|>Line 0 of the story"));
  EXPECT_TRUE(validation.starts_with("Document 16 is short too.<|endoftext|>")) << validation.substr(0, 50);
  EXPECT_TRUE(validation.ends_with("Line 299 of the story is short.\n"));
  EXPECT_EQ(data::open_shard((folder_ / "shards" / "train_000000.bin").string()).tokens.size(), 1000);
}

// As train_gpt does with the same folder.
TEST_F(Tokenize, DividesAFolderByTheNamesOfItsFiles) {
  for (const char* part : {"train", "valid", "test"})
    write_file(folder_ / "ptb" / (std::string("ptb.") + part + ".txt"), std::string("The ") + part + " text.\n");
  const Outcome outcome = train("ptb --out parts --tokenizer characters");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("not used, because its name ends with test: ptb/ptb.test.txt\n"));
  EXPECT_THAT(outcome.out, HasSubstr("file 2 of 2, for validation: ptb/ptb.valid.txt; so far"));
  const data::TokenData data = data::load_token_data({.path = (folder_ / "parts").string()});
  EXPECT_EQ(text_of(data, data.train), "The train text.\n");
  EXPECT_EQ(text_of(data, data.valid), "The valid text.\n");
  write_file(folder_ / "cased" / "Train.TXT", "A training text.\n");
  write_file(folder_ / "cased" / "VALID.TXT", "A validation text.\n");
  write_file(folder_ / "cased" / "test" / "1.txt", "A test text.\n");
  EXPECT_THAT(train("cased --out cased_parts --tokenizer characters").out,
              testing::AllOf(HasSubstr("test: cased/test/1.txt\n"), HasSubstr("for validation: cased/VALID.TXT;")));
  EXPECT_THAT(refusal("ptb --out other --tokenizer characters --validation 0.1"),
              HasSubstr("--validation: ptb/ptb.valid.txt is for validation"));
}

TEST_F(Tokenize, WritesPlainShardsOfCharacters) {
  const Outcome outcome = train("text/story.txt --out=plain --tokenizer characters --format=plain");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const data::TokenData data = data::load_token_data({.path = (folder_ / "plain").string()});
  EXPECT_EQ(text_of(data, data.train) + text_of(data, data.valid), read_file(folder_ / "text" / "story.txt"));
  EXPECT_TRUE(fs::exists(folder_ / "plain" / "val.bin"));
  write_file(folder_ / "ab.txt", "abab");
  EXPECT_THAT(train("ab.txt --out ab --tokenizer characters").out, HasSubstr("character tokenizer, 2 characters"));
  write_file(folder_ / "ba.txt", "baba");
  EXPECT_THAT(train("ab.txt ba.txt --out ba --tokenizer characters").out,
              HasSubstr("character tokenizer, 3 characters"))
      << "a line feed separates documents";
  write_file(folder_ / "latin.txt", "gr\xfc\xdf" "e ");
  EXPECT_THAT(train("latin.txt --out latin --tokenizer characters").out,
              HasSubstr("notice: 2 byte sequences of the text are not valid UTF-8, the first in latin.txt at byte 2"));
  write_file(folder_ / "c.txt", "abc");
  EXPECT_THAT(refusal("c.txt --out c --tokenizer ab"), HasSubstr("c.txt: tokenizer: the character 'c' at byte"));
}

TEST_F(Tokenize, RefusesInvalidArguments) {
  EXPECT_THAT(refusal("text --tokenizer characters"), HasSubstr("tokenize: --out is missing"));
  EXPECT_THAT(refusal("text --out x"), HasSubstr("expected either --tokenizer TOKENIZER or --train-bpe SIZE"));
  EXPECT_THAT(refusal("text --out x --train-bpe 100"), HasSubstr("--train-bpe: is '100', expected a number from 257"));
  EXPECT_THAT(refusal("none --out x --tokenizer characters"), HasSubstr("none: no such file"));
  EXPECT_THAT(refusal("text --out text --tokenizer characters"), HasSubstr("text: exists already; name a new folder"));
  EXPECT_THAT(refusal("text --out x --tokenizer none"), HasSubstr("none: no such file"));
  EXPECT_THAT(refusal("text --out x --colour 3"), HasSubstr("unknown option --colour"));
  EXPECT_THAT(refusal("text --out x --colour"), HasSubstr("unknown option --colour"));
  EXPECT_THAT(refusal("text --out"), HasSubstr("--out: is the last argument"));
  EXPECT_THAT(refusal("text --out x --format 3"), HasSubstr("--format: is '3', expected header or plain"));
  EXPECT_THAT(refusal("text --out x --tokenizer characters --format plain --shard-tokens 5"),
              HasSubstr("--shard-tokens applies to --format header"));
  EXPECT_FALSE(fs::exists(folder_ / "x"));
  write_file(folder_ / "y.partial" / "mine", "kept");
  EXPECT_THAT(refusal("text --out y --tokenizer characters"),
              HasSubstr("y.partial: exists already, from an interrupted"));
  EXPECT_EQ(read_file(folder_ / "y.partial" / "mine"), "kept");
  write_file(folder_ / "text" / "z.jsonl", "{\"text\": 3}\n");
  EXPECT_THAT(refusal("text --out x --tokenizer characters"), HasSubstr("z.jsonl: line 1: its member"));
  write_file(folder_ / "full.jsonl", "{\"text\": \"abc\"}\n");
  EXPECT_THAT(refusal("full.jsonl --out x --tokenizer characters --validation 0.9999"),
              HasSubstr("no text for training"));
  EXPECT_THAT(refusal("text/lines.jsonl --out x --tokenizer characters --validation 0.01"),
              HasSubstr("--validation 0.01: the documents are too few or too long to be split"));
  EXPECT_FALSE(fs::exists(folder_ / "x") || fs::exists(folder_ / "x.partial")) << "nothing is left half-written";
  EXPECT_THAT(train("--help").out, HasSubstr("--train-bpe SIZE"));
}

}  // namespace tokenize_test
}  // namespace godwit
