#include "data/text/byte_bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "data/text/byte_bpe_files.h"
#include "data/text/byte_characters.h"
#include "data/text/train_bpe.h"
#include "engine/clock.h"
#include "tests/support.h"

namespace godwit::data {
namespace byte_bpe_test {

using nlohmann::json;
using testing::ElementsAre, testing::HasSubstr;

const std::string kGolden = GODWIT_SOURCE_DIR "/tests/data/golden/bpe/";

std::string text_of(const std::string& path) {
  const Bytes bytes = read(path);
  return {bytes.begin(), bytes.end()};
}

std::unique_ptr<Tokenizer> golden(const std::string& name) {
  return load_tokenizer(kGolden + (name == "gpt2" ? "vocab.json" : name + ".json"));
}

TEST(ByteBpe, IdsEqualHuggingFaces) {
  const json expected = json::parse(text_of(kGolden + "expected.json"));
  ASSERT_GT(expected.size(), 200u);
  for (const std::string name : {"gpt2", "llama3", "qwen2", "added"}) {
    const auto tokenizer = golden(name);
    for (int pass = 0; pass < 2; ++pass)  // the second one finds the words in the cache
      for (const json& entry : expected) {
        const auto text = entry["text"].get<std::string>();
        EXPECT_EQ(tokenizer->encode(text), entry[name].get<std::vector<int32_t>>())
            << name << ": " << json(text).dump();
      }
  }
}

TEST(ByteBpe, AllThreadsGetTheSameIds) {
  const auto tokenizer = golden("gpt2"), alone = golden("gpt2");
  const std::string text = text_of(kGolden + "train.txt");
  std::vector<std::vector<int32_t>> ids(4);
  {
    std::vector<std::jthread> threads;
    for (auto& to : ids) threads.emplace_back([&] { tokenizer->encode(text, to); });
  }
  for (const auto& found : ids) EXPECT_EQ(found, alone->encode(text));
}

TEST(ByteBpe, DecodingReturnsAnyBytes) {
  const auto tokenizer = golden("gpt2");
  std::string bytes;
  for (int i = 0; i < 3000; ++i) bytes.push_back(static_cast<char>(i * i * 7 + i / 3));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(bytes)), bytes);
}

TEST(ByteBpe, LongRunsTakeLinearTime) {
  const auto tokenizer = golden("gpt2");
  const Clock::time_point start = Clock::now();
  for (const std::string piece : {"a", "the", "ab", "\xc3\xa9", "."}) {
    std::string run;
    while (run.size() < 500'000) run += piece;
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(run)), run);
  }
  EXPECT_LT(seconds_since(start), 20) << "a quadratic algorithm takes minutes";
}

TEST(ByteBpe, KnowsTheEndOfText) {
  for (const std::string name : {"gpt2", "llama3", "qwen2"}) {
    const auto tokenizer = golden(name);
    EXPECT_EQ(tokenizer->end_of_text(), 0) << name;
    EXPECT_TRUE(tokenizer->is_special(0));
    EXPECT_FALSE(tokenizer->is_special(5));
    EXPECT_EQ(tokenizer->token(0), "<|endoftext|>");
  }
}

TEST(ByteBpe, RoundTripsThroughAFolder) {
  const json texts = json::parse(text_of(kGolden + "expected.json"));
  for (const std::string name : {"gpt2", "llama3", "qwen2", "added"}) {
    const TempFolder folder;
    const auto tokenizer = golden(name);
    tokenizer->save(folder.str());
    const auto again = load_tokenizer(folder.str());
    EXPECT_EQ(again->fingerprint(), tokenizer->fingerprint()) << name;
    for (const json& entry : texts)
      EXPECT_EQ(again->encode(entry["text"].get<std::string>()), entry[name].get<std::vector<int32_t>>());
    EXPECT_EQ(std::filesystem::exists(folder / "vocab.json"), name == "gpt2");
    if (name == "gpt2") {
      EXPECT_EQ(text_of(folder / "merges.txt"), text_of(kGolden + "merges.txt"));
      EXPECT_EQ(load_tokenizer(folder / "merges.txt")->fingerprint(), tokenizer->fingerprint());
    }
  }
  EXPECT_NE(golden("gpt2")->fingerprint(), golden("qwen2")->fingerprint());
}

// A vocabulary and merges alone are read as GPT-2's tokenizer.
TEST(ByteBpe, AVocabularyOfAnotherTokenizerNeedsItsJson) {
  const TempFolder folder;
  golden("gpt2")->save(folder.str());
  EXPECT_EQ(json::parse(text_of(folder / "tokenizer_config.json")),
            json({{"tokenizer_class", "GPT2Tokenizer"}, {"eos_token", "<|endoftext|>"}}));
  std::filesystem::remove(folder / "tokenizer.json");
  EXPECT_EQ(load_tokenizer(folder.str())->size(), golden("gpt2")->size());
  for (const std::string name : {"Qwen2Tokenizer", "PreTrainedTokenizerFast"}) {
    const std::string config = json({{"tokenizer_class", name}}).dump();
    write(folder / "tokenizer_config.json", Bytes(config.begin(), config.end()));
    for (const std::string& path : {folder.str(), folder / "vocab.json", folder / "merges.txt"})
      EXPECT_THAT(error_of([&] { load_tokenizer(path); }),
                  HasSubstr("tokenizer_config.json: describes a " + name + ", which"));
  }
  const TempFolder other;
  golden("llama3")->save(other.str());
  EXPECT_EQ(json::parse(text_of(other / "tokenizer_config.json")),
            json({{"tokenizer_class", "PreTrainedTokenizerFast"},
                  {"eos_token", golden("llama3")->token(*golden("llama3")->end_of_text())}}));
}

TEST(ByteBpe, AVocabularyWithOtherRulesNeedsItsJson) {
  const TempFolder folder;
  golden("gpt2")->save(folder.str());
  std::filesystem::remove(folder / "tokenizer.json");
  const auto write_json = [&](const char* name, const json& value) {
    const std::string text = value.dump();
    write(folder / name, Bytes(text.begin(), text.end()));
  };
  const auto message = [&] { return error_of([&] { load_tokenizer(folder.str()); }); };
  const std::string remedy = ": describes a tokenizer with the added token \"<tool>\", which vocab.json and its merges "
                             "do not describe completely; add its tokenizer.json to the folder";
  json decoder{{"0", {{"content", "<|endoftext|>"}, {"special", true}}}};
  write_json("tokenizer_config.json", {{"tokenizer_class", "GPT2Tokenizer"}, {"added_tokens_decoder", decoder}});
  write_json("added_tokens.json", {{"<|endoftext|>", 0}});
  EXPECT_EQ(load_tokenizer(folder.str())->fingerprint(), golden("gpt2")->fingerprint());
  decoder["500"] = {{"content", "<tool>"}};
  write_json("tokenizer_config.json", {{"tokenizer_class", "GPT2Tokenizer"}, {"added_tokens_decoder", decoder}});
  EXPECT_EQ(message(), folder / "tokenizer_config.json" + remedy);
  write_json("added_tokens.json", {{"<|endoftext|>", 0}, {"<tool>", 500}});
  EXPECT_EQ(message(), folder / "added_tokens.json" + remedy);
  std::filesystem::remove(folder / "added_tokens.json");
  write_json("tokenizer_config.json", {{"tokenizer_class", "GPT2Tokenizer"}, {"add_prefix_space", true}});
  EXPECT_EQ(message(), folder / "tokenizer_config.json" +
                           ": add_prefix_space: is true, but no space is added before a text; set it to false, which "
                           "changes the first token of a text");
}

// A file that is named is not read with another pattern than that of its folder.
TEST(ByteBpe, AVocabularyBesideItsJsonHasTheSameRules) {
  const TempFolder folder;
  golden("gpt2")->save(folder.str());
  json tokenizer = json::parse(text_of(folder / "tokenizer.json"));
  tokenizer["pre_tokenizer"] = json::parse(text_of(kGolden + "qwen2.json"))["pre_tokenizer"];
  const std::string text = tokenizer.dump();
  write(folder / "tokenizer.json", Bytes(text.begin(), text.end()));
  EXPECT_NE(load_tokenizer(folder.str())->fingerprint(), golden("gpt2")->fingerprint());
  for (const std::string name : {"vocab.json", "merges.txt"})
    EXPECT_EQ(error_of([&] { load_tokenizer(folder / name); }),
              folder / name + ": has the tokens of " + (folder / "tokenizer.json") +
                  ", but not its pattern, normalizer and added tokens; use " + (folder / "tokenizer.json"));
}

TEST(ByteBpe, FilesOfAFolderMustAgree) {
  const TempFolder folder;
  golden("gpt2")->save(folder.str());
  const auto message = [&] { return error_of([&] { load_tokenizer(folder.str()); }); };
  const std::string merges = text_of(folder / "merges.txt");
  const auto last = static_cast<std::ptrdiff_t>(merges.rfind('\n', merges.size() - 2));
  write(folder / "merges.txt", Bytes(merges.begin(), merges.begin() + last + 1));
  EXPECT_THAT(message(), HasSubstr("vocab.json: is another tokenizer than "));
  write(folder / "merges.txt", Bytes(merges.begin(), merges.end()));
  json tokenizer = json::parse(text_of(folder / "tokenizer.json"));
  json& vocabulary = tokenizer["model"]["vocab"];
  std::swap(vocabulary["!"], vocabulary["#"]);
  const std::string swapped = tokenizer.dump();
  write(folder / "tokenizer.json", Bytes(swapped.begin(), swapped.end()));
  EXPECT_EQ(message(), folder / "vocab.json" + ": is another tokenizer than " + (folder / "tokenizer.json") +
                           "; remove the wrong file, or select the right one with --tokenizer FILE");
  EXPECT_EQ(load_tokenizer(folder / "vocab.json")->fingerprint(), golden("gpt2")->fingerprint());
  write(folder / "characters.json", {'[', '"', 'a', '"', ']'});
  EXPECT_THAT(message(), HasSubstr("tokenizer.json: is another tokenizer than " + (folder / "characters.json")));
  // Added tokens may be in tokenizer.json alone.
  std::filesystem::remove(folder / "characters.json");
  golden("added")->save(folder.str());
  json added = json::parse(text_of(folder / "tokenizer.json"));
  std::string lines;
  for (const json& merge : added["model"]["merges"])
    lines += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  const std::string vocab = added["model"]["vocab"].dump();
  write(folder / "vocab.json", Bytes(vocab.begin(), vocab.end()));
  write(folder / "merges.txt", Bytes(lines.begin(), lines.end()));
  EXPECT_EQ(load_tokenizer(folder.str())->fingerprint(), golden("added")->fingerprint());
}

TEST(ByteBpe, NamesUnsupportedTokenizers) {
  const TempFolder folder;
  const json good = json::parse(text_of(kGolden + "llama3.json"));
  const auto message = [&](const char* pointer, const json& value) {
    json changed = good;
    changed[json::json_pointer(pointer)] = value;
    const std::string text = changed.dump();
    write(folder / "tokenizer.json", Bytes(text.begin(), text.end()));
    return error_of([&] { load_tokenizer(folder.str()); });
  };
  EXPECT_THAT(message("/model/type", "Unigram"), HasSubstr("model.type: is \"Unigram\"; expected a byte-level BPE"));
  EXPECT_THAT(message("/model/byte_fallback", true), HasSubstr("a SentencePiece-style BPE; expected a byte-level"));
  EXPECT_THAT(message("/model/dropout", 0.1), HasSubstr("has a dropout"));
  EXPECT_THAT(message("/model/end_of_word_suffix", "</w>"),
              HasSubstr("end_of_word_suffix: is \"</w>\", expected null"));
  EXPECT_THAT(message("/pre_tokenizer", {{"type", "Metaspace"}}), HasSubstr("pre_tokenizer.type: is \"Metaspace\""));
  EXPECT_THAT(message("/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\w+"),
              HasSubstr("is \"\\w+\"; expected the pattern of GPT-2, LLaMA 3 or Qwen 2"));
  EXPECT_THAT(message("/pre_tokenizer/pretokenizers/1/add_prefix_space", true),
              HasSubstr("is true, but no space is added before a text; set it to false"));
  EXPECT_THAT(message("/normalizer", {{"type", "NFKC"}}),
              HasSubstr("normalizer.type: is \"NFKC\", expected none or NFC"));
  EXPECT_THAT(message("/added_tokens/0/single_word", true), HasSubstr("single_word: is true, expected false"));
  EXPECT_THAT(message("/added_tokens/1/id", 9999), HasSubstr("id is 9999, expected at most"));
  EXPECT_THAT(message("/model/merges/0", "a b c"), HasSubstr("model.merges[0]: \"a b c\" is not a merge"));
  EXPECT_THAT(message("/model/merges/0", "a \u4e2d"), HasSubstr("\"\u4e2d\" is not in the vocabulary"));
  EXPECT_THAT(message("/model/vocab/!", 77), HasSubstr("the id 77 belongs to two tokens, "));
  EXPECT_THAT(message("/model/vocab/zzzz", 5000), HasSubstr("the id of \"zzzz\" is 5000, expected 0 to"));
}

TEST(ByteBpe, RefusesBadMerges) {
  const TempFolder folder;
  std::filesystem::copy(kGolden + "vocab.json", folder / "vocab.json");
  const auto message = [&](const std::string& merges) {
    write(folder / "merges.txt", Bytes(merges.begin(), merges.end()));
    return error_of([&] { load_tokenizer(folder.str()); });
  };
  EXPECT_THAT(message("#version: 0.2\nh e\nab\n"), HasSubstr("merges.txt: line 3: \"ab\" is not a merge"));
  EXPECT_THAT(message("Q Z\n"), HasSubstr("merges.txt: line 1: makes \"QZ\", which is not in the vocabulary"));
  std::filesystem::remove(folder / "merges.txt");
  EXPECT_THAT(error_of([&] { load_tokenizer(folder / "vocab.json"); }), HasSubstr("merges.txt: no such file"));
  const TempFolder sentence_piece;
  write(sentence_piece / "tokenizer.model", {1, 2, 3});
  EXPECT_TRUE(has_tokenizer(sentence_piece.str()));
  EXPECT_THAT(error_of([&] { load_tokenizer(sentence_piece.str()); }),
              HasSubstr("is a SentencePiece model; expected a byte-level BPE model such as GPT-2, LLaMA 3 or Qwen 2"));
  const std::string small = "{\"a\": 0}";
  write(folder / "vocab.json", Bytes(small.begin(), small.end()));
  EXPECT_THAT(message("#version: 0.2\n"), HasSubstr("which stands for the byte 0; a byte-level BPE has all 256 bytes"));
}

// A model of the 256 bytes in order, and some more tokens.
ByteBpeModel bytes_and(const std::vector<std::string>& more) {
  ByteBpeModel model;
  for (int byte = 0; byte < 256; ++byte)
    model.tokens.push_back(to_byte_characters(std::string(1, static_cast<char>(byte))));
  model.tokens.insert(model.tokens.end(), more.begin(), more.end());
  return model;
}

TEST(ByteBpe, ARawControlCharacterInTheVocabularyIsNotAByte) {
  const ByteBpe tokenizer(bytes_and({"\x01", " ", "\u00ad"}));
  EXPECT_THAT(tokenizer.encode("\x01 "), ElementsAre(1, 32));
}

TEST(ByteBpe, AddedTokensAreNotWords) {
  ByteBpeModel model = bytes_and({"ab", "cd"});
  model.added = {{.id = 257, .content = "cd", .special = false, .normalized = true}};
  model.ignore_merges = true;
  EXPECT_THAT(ByteBpe(model).encode("ab"), ElementsAre(256));
  model.added_only = 1;
  model.added[0].content = model.tokens[257] = "\u0120cd";  // the word " cd" in the vocabulary's characters
  const ByteBpe tokenizer(model);
  EXPECT_THAT(tokenizer.encode(" cd"), ElementsAre(' ', 'c', 'd'));
  EXPECT_THAT(tokenizer.encode("\u0120cd"), ElementsAre(257));
  model.merges = {{'c', 'd'}};
  model.added[0].content = model.tokens[257] = "cd";
  EXPECT_THAT(error_of([&] { ByteBpe{model}; }), HasSubstr("merge 0 makes \"cd\", which is not in the vocabulary"));
  model.added.clear();
  EXPECT_THAT(error_of([&] { ByteBpe{model}; }), HasSubstr("token 257 is not in the vocabulary of 257 tokens"));
}

TEST(ByteBpe, LimitsTheLengthOfAddedTokens) {
  ByteBpeModel model = bytes_and({std::string(1024, 'a'), std::string(1025, 'b')});
  model.added = {{.id = 256, .content = model.tokens[256]}};
  EXPECT_THAT(ByteBpe(model).encode(model.tokens[256]), ElementsAre(256));
  model.added.push_back({.id = 257, .content = model.tokens[257]});
  EXPECT_THAT(error_of([&] { ByteBpe{model}; }),
              HasSubstr("the added token 257 has 1025 bytes, expected at most 1024"));
}

TEST(ByteBpe, TokenizersWithEqualIdsHaveEqualFingerprints) {
  const auto fingerprint = [](bool first, bool second, bool nfc) {
    ByteBpeModel model = bytes_and({"<a>", "<a>b"});
    model.added = {{.id = 256, .content = "<a>", .normalized = first},
                   {.id = 257, .content = "<a>b", .normalized = second}};
    model.nfc = nfc;
    return ByteBpe(model).fingerprint();
  };
  EXPECT_EQ(fingerprint(false, false, false), fingerprint(true, true, false));
  EXPECT_NE(fingerprint(false, false, false), fingerprint(false, true, false)) << "gives <a> and b";
  EXPECT_NE(fingerprint(false, false, true), fingerprint(true, true, true));
}

TEST(ByteBpe, SavesTokensWithSpaces) {
  ByteBpeModel model = bytes_and({" ", "a ", "#version", "#versionx"});
  model.merges = {{'a', 256}, {258, 'x'}};
  const auto saved = [](const ByteBpeModel& what) {
    const TempFolder folder;
    const ByteBpe tokenizer(what);
    tokenizer.save(folder.str());
    EXPECT_FALSE(std::filesystem::exists(folder / "merges.txt"));
    EXPECT_EQ(load_tokenizer(folder.str())->fingerprint(), tokenizer.fingerprint());
  };
  saved(model);
  model.merges.erase(model.merges.begin());
  saved(model);
  model.merges.clear();
  model.added = {{.id = 257, .content = "a "}};
  saved(model);
  EXPECT_THAT(error_of([&] { ByteBpe(bytes_and({"\xff"})); }), HasSubstr("token 256, \""));
}

TEST(TrainBpe, MergesEqualHuggingFaces) {
  const std::string text = text_of(kGolden + "train.txt");
  bool taken = false;
  const TextReader next = [&](std::string& to) { return !taken && (to = text, taken = true); };
  const ByteBpe tokenizer = train_bpe(next, {.size = 500});
  EXPECT_EQ(tokenizer.size(), 500);
  EXPECT_EQ(tokenizer.fingerprint(), golden("gpt2")->fingerprint());
  taken = false;
  const ByteBpe qwen = train_bpe(next, {.size = 450, .pattern = WordPatternKind::qwen2});
  const ByteBpe expected = read_bpe_json(kGolden + "qwen2.json");
  EXPECT_EQ(qwen.model().tokens, expected.model().tokens);
  EXPECT_EQ(qwen.model().merges, expected.model().merges);
  taken = false;
  EXPECT_THAT(error_of([&] { train_bpe(next, {.size = 256}); }),
              HasSubstr("a vocabulary of 256 tokens, expected at least 257"));
}

}  // namespace byte_bpe_test
}  // namespace godwit::data
