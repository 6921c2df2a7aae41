#include "data/text/token_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>

#include "data/text/char_tokenizer.h"
#include "data/text/corpus.h"
#include "data/text/documents.h"
#include "data/text/token_shard.h"
#include "data/text/word_vocabulary.h"
#include "tests/data/files.h"
#include "tests/support.h"

namespace godwit::data {
namespace token_data_test {

using testing::ElementsAre, testing::HasSubstr;

const std::string kGolden = GODWIT_SOURCE_DIR "/tests/data/golden/bpe/";

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

std::vector<int32_t> ids_of(const TokenStream& stream) {
  std::vector<int32_t> ids(static_cast<size_t>(stream.size()));
  stream.read(0, ids);
  return ids;
}

std::vector<std::string> documents_of(const std::string& path) {
  std::vector<std::string> texts;
  for (const std::string& file : files_below(path, text_endings()))
    each_document(file, [&](std::string_view text, size_t) { texts.emplace_back(text); });
  return texts;
}

// A file of int32 header words and uint16 ids.
Bytes shard_bytes(std::vector<int32_t> header, const std::vector<uint16_t>& ids) {
  header.resize(256);
  Bytes bytes(1024 + 2 * ids.size());
  std::memcpy(bytes.data(), header.data(), 1024);
  std::memcpy(bytes.data() + 1024, ids.data(), 2 * ids.size());
  return bytes;
}

TEST(Documents, AreReadInOrderOfPaths) {
  const TempFolder folder;
  write(folder / "b.txt", bytes_of("last"));
  write(folder / "a/2.jsonl.gz", gzip(bytes_of("{\"text\": \"packed\"}\n")));
  write(folder / "a/1.jsonl",
        bytes_of("{\"text\": \"one\\n\", \"id\": 1}\r\n\n{\"text\": \"\"}\n{\"text\": \"zwei ü\"}"));
  write(folder / "a/notes.md", bytes_of("ignored"));
  EXPECT_THAT(documents_of(folder.str()), ElementsAre("one\n", "zwei ü", "packed", "last"));
  EXPECT_THAT(documents_of(folder / "a/notes.md"), ElementsAre("ignored"));
}

// As Python's json.loads().
TEST(Documents, TheLastOfEqualKeysCounts) {
  const TempFolder folder;
  write(folder / "x.jsonl", bytes_of("{\"text\": 1, \"text\": \"first\", \"id\": 2, \"text\": \"last\"}"));
  EXPECT_THAT(documents_of(folder / "x.jsonl"), ElementsAre("last"));
}

TEST(Documents, EndingsMayBeInUpperCase) {
  const TempFolder folder;
  write(folder / "a.JSONL", bytes_of("{\"text\": \"one\"}\n"));
  write(folder / "b.Txt.GZ", gzip(bytes_of("two")));
  EXPECT_THAT(documents_of(folder.str()), ElementsAre("one", "two"));
  write(folder / "c.BIN", {4, 0, 5, 0});
  EXPECT_THAT(error_of([&] { load_token_data({.path = folder.str()}); }), HasSubstr("has text files and shards"));
}

TEST(Documents, RefusesJsonAndBinaryFiles) {
  const TempFolder folder;
  for (const char* name : {"corpus.json", "corpus.JSON.gz"}) {
    write(folder / name, bytes_of("{\"text\": \"one\"}\n"));
    EXPECT_THAT(error_of([&] { documents_of(folder / name); }),
                HasSubstr(std::string(name) + ": JSON is not read, expected text or JSONL; rename a file"));
  }
  for (const char* name : {"corpus.json", "corpus.JSONL", "corpus.jsonl.gz"}) {
    const std::string expected =
        folder / name + ": JSON is not read here, expected plain text; write the texts to a file *.txt";
    write(folder / name, bytes_of("{\"text\": \"one\"}\n"));
    EXPECT_EQ(error_of([&] { read_corpus(folder / name); }), expected);
    EXPECT_EQ(error_of([&] { read_word_text(folder / name, WordSplit::spaces); }), expected);
  }
  write(folder / "marked.txt", bytes_of("\xef\xbb\xbfone"));
  EXPECT_THAT(documents_of(folder / "marked.txt"), ElementsAre("one"));
  write(folder / "binary.txt", {'a', 'b', 0, 'c'});
  EXPECT_THAT(error_of([&] { documents_of(folder / "binary.txt"); }),
              HasSubstr("binary.txt: is not a text in UTF-8: byte 2 is 0"));
}

TEST(Documents, FollowsLinks) {
  const TempFolder folder;
  write(folder / "other/a.txt", bytes_of("linked"));
  write(folder / "d/b.txt", bytes_of("plain"));
  std::filesystem::create_directory_symlink(folder / "other", folder / "d/link");
  std::filesystem::create_directory_symlink(folder / "d", folder / "d/loop");
  std::filesystem::create_directory_symlink(folder / "d", folder / "other/back");
  EXPECT_THAT(documents_of(folder / "d"), ElementsAre("plain", "linked"));
}

TEST(Documents, TextsAreUtf8) {
  const TempFolder folder;
  for (const Bytes& utf16 : {Bytes{0xff, 0xfe, 'a', 0}, {0xfe, 0xff, 0, 'a'}, {'a', 0, 'b', 0}, {0, 'a', 0, 'b'}}) {
    write(folder / "a.txt", utf16);
    const auto expect_refused = [&](const auto& read) {
      EXPECT_EQ(error_of(read), folder / "a.txt: is UTF-16; convert it to UTF-8");
    };
    expect_refused([&] { documents_of(folder / "a.txt"); });
    expect_refused([&] { read_corpus(folder / "a.txt"); });
    expect_refused([&] { read_word_text(folder / "a.txt", WordSplit::spaces); });
    expect_refused([&] { read_word_vocabulary(folder / "a.txt"); });
  }
  write(folder / "b.txt", bytes_of("\xef\xbb\xbf<eos>\nb\n"));
  EXPECT_EQ(read_word_text(folder / "b.txt", WordSplit::spaces).text, "<eos>\nb\n");
  EXPECT_EQ(read_word_vocabulary(folder / "b.txt").id("b"), 1);
  EXPECT_EQ(read_corpus(folder / "b.txt").sentence(0), "<eos>");
}

TEST(TokenData, TextsOfAFolderHavePartsByTheirNames) {
  const TempFolder folder;
  for (const char* name : {"train.txt", "a/valley.txt", "testament.jsonl.gz", "ptb.test.txt", "wiki-valid.txt.gz"}) {
    const std::string text = std::string(name).find("jsonl") == std::string::npos ? name : "{\"text\": \"jsonl\"}";
    write(folder / name, std::string(name).ends_with(".gz") ? gzip(bytes_of(text)) : bytes_of(text));
  }
  const TokenData data = load_token_data({.path = folder.str()});
  EXPECT_EQ(data.tokenizer->decode(ids_of(data.train)), "a/valley.txt\njsonl\ntrain.txt");
  EXPECT_EQ(data.tokenizer->decode(ids_of(data.valid)), "wiki-valid.txt.gz");
  EXPECT_THAT(data.of_test, ElementsAre(folder / "ptb.test.txt"));
  const TokenData all = load_token_data({.path = folder.str(), .valid = folder / "train.txt"});
  EXPECT_EQ(all.tokenizer->decode(ids_of(all.train)), "a/valley.txt\nptb.test.txt\njsonl\nwiki-valid.txt.gz");
}

TEST(Documents, HiddenNamesAreIgnored) {
  const TempFolder folder;
  write(folder / "d/a.txt", bytes_of("text"));
  for (const char* hidden : {"d/._a.txt", "d/.ipynb_checkpoints/a-checkpoint.txt", "d/b/.git/c.txt"})
    write(folder / hidden, bytes_of("hidden"));
  EXPECT_THAT(documents_of(folder / "d"), ElementsAre("text"));
  EXPECT_THAT(documents_of(folder / "d/.ipynb_checkpoints"), ElementsAre("hidden")) << "a folder that is named is read";
}

TEST(Documents, FoldersOfRunsAreIgnored) {
  const TempFolder folder;
  write(folder / "d/a.txt", bytes_of("text"));
  for (const char* run : {"d/run", "d/runs/b"}) {
    write(folder / run + "/samples.txt", bytes_of("sample"));
    write(folder / run + "/metrics.jsonl", bytes_of("{}"));
    write(folder / run + "/config.json", bytes_of("{\n  \"program\": \"train_gpt\""));
  }
  EXPECT_THAT(documents_of(folder / "d"), ElementsAre("text"));
  write(folder / "d/run/metrics.jsonl", bytes_of("{\"text\": \"json\"}"));
  write(folder / "d/run/config.json", bytes_of("{\"program\": \"another\"}"));
  EXPECT_THAT(documents_of(folder / "d"), ElementsAre("text", "json", "sample"));
}

TEST(Documents, NoFileIsLeftOutSilently) {
  const TempFolder folder;
  write(folder / "d/a.txt", bytes_of("text"));
  for (const char* other : {".#a.txt", "notes.md"})
    std::filesystem::create_symlink("none", std::filesystem::path(folder / "d") / other);
  EXPECT_THAT(documents_of(folder / "d"), ElementsAre("text"));
  for (const char* name : {"b.txt", "folder"}) {
    std::filesystem::create_symlink("none", std::filesystem::path(folder / "d") / name);
    EXPECT_THAT(error_of([&] { documents_of(folder / "d"); }),
                HasSubstr((folder / "d/") + name + ": cannot be read (No such file or directory)"));
    std::filesystem::remove(std::filesystem::path(folder / "d") / name);
  }
  ASSERT_EQ(::mkfifo((folder / "d/c.txt").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { documents_of(folder / "d"); }), HasSubstr("d/c.txt: is not a regular file"));
}

TEST(Documents, ErrorsNameTheLine) {
  const TempFolder folder;
  const std::string path = folder / "x.jsonl";
  const auto message = [&](const std::string& line) {
    write(path, bytes_of("{\"text\": \"a\"}\n" + line + "\n"));
    return error_of([&] { documents_of(path); });
  };
  EXPECT_THAT(message("{\"txt\": 1}"), HasSubstr("x.jsonl: line 2: its member \"text\" is missing"));
  EXPECT_THAT(message("{\"text\": 1}"), HasSubstr("x.jsonl: line 2: its member \"text\" is not a string"));
  EXPECT_THAT(message("[1]"), HasSubstr("x.jsonl: line 2: is not a JSON object"));
  EXPECT_THAT(message("{\"text\""), HasSubstr("x.jsonl: line 2:"));
  EXPECT_THAT(error_of([&] { documents_of(folder / "none"); }), HasSubstr("none: no such file"));
  std::filesystem::remove(path);
  EXPECT_THAT(error_of([&] { documents_of(folder.str()); }), HasSubstr("has no files *.txt, *.jsonl"));
}

TEST(TokenShard, ReadsBothFormats) {
  const TempFolder folder;
  write(folder / "plain.bin", {1, 0, 2, 0, 0xff, 0xff});
  EXPECT_THAT(ids_of(open_shard(folder / "plain.bin").tokens), ElementsAre(1, 2, 65535));
  write(folder / "llmc.bin", shard_bytes({20240520, 1, 3}, {7, 8, 50256}));
  const Shard shard = open_shard(folder / "llmc.bin");
  EXPECT_THAT(ids_of(shard.tokens), ElementsAre(7, 8, 50256));
  EXPECT_EQ(shard.fingerprint, 0u);
}

TEST(TokenShard, RoundTrips) {
  const TempFolder folder;
  const auto tokenizer = load_tokenizer(kGolden + "vocab.json");
  const std::vector<int32_t> ids{3, 499, 0, 7};
  for (const ShardFormat format : {ShardFormat::plain, ShardFormat::header}) {
    ShardWriter writer(folder / "a.bin", format, *tokenizer);
    writer.add(ids);
    writer.add(std::span(ids).first(2));
    EXPECT_EQ(writer.size(), 6);
    writer.close();
    const Shard shard = open_shard(folder / "a.bin");
    EXPECT_THAT(ids_of(shard.tokens), ElementsAre(3, 499, 0, 7, 3, 499));
    EXPECT_EQ(shard.fingerprint, format == ShardFormat::header ? tokenizer->fingerprint() : 0);
    EXPECT_EQ(shard.vocabulary, format == ShardFormat::header ? 500 : 0);
  }
  std::filesystem::remove(folder / "a.bin");
  { ShardWriter unfinished(folder / "a.bin", ShardFormat::header, *tokenizer); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.str())) << "an unfinished shard leaves nothing";
}

TEST(TokenShard, IdsAbove16BitsNeedAHeader) {
  const TempFolder folder;
  std::vector<char32_t> characters;
  for (char32_t code = 0x20000; code < 0x20000 + 70000; ++code) characters.push_back(code);
  const CharTokenizer large(characters);
  EXPECT_THAT(error_of([&] { ShardWriter(folder / "a.bin", ShardFormat::plain, large); }),
              HasSubstr("70000 tokens do not fit into the uint16 ids"));
  ShardWriter writer(folder / "a.bin", ShardFormat::header, large);
  writer.add(std::vector<int32_t>{1, 69999});
  writer.close();
  EXPECT_THAT(ids_of(open_shard(folder / "a.bin").tokens), ElementsAre(1, 69999));
}

TEST(TokenShard, RefusesCorruptFiles) {
  const TempFolder folder;
  const auto message = [&](const Bytes& bytes) {
    write(folder / "a.bin", bytes);
    return error_of([&] { open_shard(folder / "a.bin"); });
  };
  EXPECT_THAT(message({}), HasSubstr("a.bin: is empty"));
  EXPECT_THAT(message({1, 2, 3}), HasSubstr("has 3 bytes and no header, expected uint16 ids"));
  EXPECT_THAT(message(shard_bytes({20240520, 2, 1}, {1})), HasSubstr("has version 2, expected 1"));
  EXPECT_THAT(message(shard_bytes({20240520, 1, 3}, {1})), HasSubstr("states 3 tokens of 2 bytes, but 2 bytes follow"));
  EXPECT_THAT(message(shard_bytes({20240520, 1, -1}, {1})), HasSubstr("states -1 tokens"));
  Bytes half = shard_bytes({20240520, 1, 1}, {1});
  half.resize(500);
  EXPECT_THAT(message(half), HasSubstr("is truncated: has 500 bytes"));
  EXPECT_THAT(error_of([&] { open_shard(folder / "none.bin"); }), HasSubstr("none.bin: cannot be opened"));
  EXPECT_THAT(error_of([&] { open_shard(folder.str()); }), HasSubstr("is not a regular file"));
  ASSERT_EQ(::mkfifo((folder / "fifo.bin").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { open_shard(folder / "fifo.bin"); }), HasSubstr("fifo.bin: is not a regular file"));
}

TEST(TokenShard, IdsWithoutAHeaderHave16Bits) {
  const TempFolder folder;
  const auto written = [&]<class Id>(Id step, size_t count) {
    std::vector<Id> ids(count);
    for (size_t i = 0; i < count; ++i) ids[i] = static_cast<Id>(i * step % 500);
    Bytes bytes(count * sizeof(Id));
    std::memcpy(bytes.data(), ids.data(), bytes.size());
    write(folder / "a.bin", bytes);
    return folder / "a.bin";
  };
  const auto refusal = HasSubstr("a.bin: has no header, and every second uint16 of its beginning is 0, as in ids of ");
  EXPECT_THAT(error_of([&] { open_shard(written(uint32_t{7}, 300)); }), refusal);
  EXPECT_THAT(error_of([&] { open_shard(written(uint64_t{7}, 300)); }), refusal);
  EXPECT_EQ(open_shard(written(uint16_t{250}, 300)).tokens.size(), 300) << "the even ids are 0";
  EXPECT_EQ(open_shard(written(uint16_t{0}, 300)).tokens.size(), 300);
  write(folder / "other.bin", shard_bytes({20240519, 1, 3}, {7, 8, 9}));
  EXPECT_EQ(error_of([&] { open_shard(folder / "other.bin"); }),
            folder / "other.bin: begins with a header of the magic 20240519, expected 20240520, 20240801 or no header");
  std::vector<char32_t> characters;
  for (char32_t code = 0x20000; code < 0x20000 + 65536; ++code) characters.push_back(code);
  CharTokenizer(characters).save(folder.str());
  const std::string plain = written(uint16_t{7}, 300);
  EXPECT_EQ(load_token_data({.path = plain}).tokenizer->size(), 65536);
  characters.push_back(0x30000);
  CharTokenizer(characters).save(folder.str());
  EXPECT_THAT(error_of([&] { load_token_data({.path = plain}); }),
              HasSubstr("a.bin: has no header, so its ids have 16 bits, but the tokenizer has 65537 tokens"));
}

TEST(TokenData, ATextIsSplitAtItsEnd) {
  const TempFolder folder;
  write(folder / "a.txt", bytes_of("abcabcabcd"));
  const TokenData data = load_token_data({.path = folder / "a.txt", .valid_fraction = 0.3});
  EXPECT_EQ(data.tokenizer->size(), 4);
  EXPECT_THAT(ids_of(data.train), ElementsAre(0, 1, 2, 0, 1, 2, 0));
  EXPECT_THAT(ids_of(data.valid), ElementsAre(1, 2, 3));
}

TEST(TokenData, EndOfTextSeparatesDocuments) {
  const TempFolder folder;
  write(folder / "t/a.jsonl", bytes_of("{\"text\": \"the\"}\n{\"text\": \"you\"}\n"));
  write(folder / "v.txt", bytes_of("the you"));
  const TokenData data =
      load_token_data({.path = folder / "t", .valid = folder / "v.txt", .tokenizer = kGolden + "vocab.json"});
  std::vector<int32_t> expected = data.tokenizer->encode("the");
  expected.push_back(0);
  data.tokenizer->encode("you", expected);
  EXPECT_EQ(ids_of(data.train), expected);
  EXPECT_EQ(ids_of(data.valid), data.tokenizer->encode("the you"));
  const TokenData characters = load_token_data({.path = folder / "t", .valid = folder / "v.txt"});
  EXPECT_EQ(characters.tokenizer->decode(ids_of(characters.train)), "the\nyou");
}

TEST(TokenData, ShardsKeepTheirTokenizer) {
  const TempFolder folder;
  const auto tokenizer = load_tokenizer(kGolden + "vocab.json");
  const auto add = [&](const std::string& name, const std::vector<int32_t>& ids, ShardFormat format) {
    std::filesystem::create_directories(std::filesystem::path(folder / name).parent_path());
    ShardWriter writer(folder / name, format, *tokenizer);
    writer.add(ids);
    writer.close();
  };
  add("s/train_000000.bin", {1, 2, 3}, ShardFormat::header);
  add("s/train_000001.bin", {4}, ShardFormat::header);
  add("s/val_000000.bin", {5, 6}, ShardFormat::header);
  EXPECT_EQ(load_token_data({.path = folder / "s"}).tokenizer, nullptr);
  tokenizer->save(folder / "s");
  const TokenData data = load_token_data({.path = folder / "s"});
  EXPECT_EQ(data.tokenizer->fingerprint(), tokenizer->fingerprint());
  EXPECT_THAT(ids_of(data.train), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(ids_of(data.valid), ElementsAre(5, 6));
  EXPECT_THAT(
      error_of([&] { load_token_data({.path = folder / "s", .tokenizer = kGolden + "qwen2.json"}); }),
      HasSubstr("train_000000.bin: was made with a tokenizer of 500 tokens; the tokenizer of this run is another one: "
                "byte-level BPE, 450 tokens; use the tokenizer of the shards"));
  EXPECT_THAT(error_of([&] { load_token_data({.path = folder / "s", .tokenizer = kCharacters}); }),
              HasSubstr("data.tokenizer: \"characters\" is for text; shards need the tokenizer"));
  add("p/train.bin", {1, 2, 499, 3}, ShardFormat::plain);
  // All tokens are checked at the start, because they may be used hours later.
  EXPECT_THAT(
      error_of([&] {
        load_token_data({.path = folder / "p/train.bin", .tokenizer = kGolden + "qwen2.json", .valid_fraction = 0.25});
      }),
      HasSubstr("train.bin: token 2 is 499, expected ids below 450, the size of the vocabulary"));
  add("p/train.bin", {1, 2, 3}, ShardFormat::plain);
  add("p/val.bin", {1, 2, 499, 3}, ShardFormat::plain);
  EXPECT_THAT(error_of([&] { load_token_data({.path = folder / "p", .tokenizer = kGolden + "qwen2.json"}); }),
              HasSubstr("val.bin: token 2 is 499"));
  tokenizer->save(folder / "p");
  EXPECT_THAT(error_of([&] { load_token_data({.path = folder / "p", .tokenizer = kGolden + "qwen2.json"}); }),
              HasSubstr("train.bin: the folder has another tokenizer than the one of this run"));
  add("q/val.bin", {1, 2, 3}, ShardFormat::plain);
  EXPECT_NO_THROW(load_token_data({.path = folder / "p", .valid = folder / "q"}));
  std::filesystem::copy_file(kGolden + "qwen2.json", folder / "q/tokenizer.json");
  EXPECT_THAT(error_of([&] { load_token_data({.path = folder / "p", .valid = folder / "q"}); }),
              HasSubstr("q/val.bin: the folder has another tokenizer than the one of this run: "));
  EXPECT_NO_THROW(load_token_data({.path = folder / "p", .tokenizer = kGolden + "vocab.json"}));
}

TEST(TokenData, NeverTrainsOnValidationFiles) {
  const TempFolder folder;
  write(folder / "s/train_0.bin", {1, 0, 2, 0});
  write(folder / "s/train_1.bin", {3, 0});
  write(folder / "s/val_0.bin", {4, 0});
  write(folder / "other.bin", {5, 0});
  const TokenData other = load_token_data({.path = folder / "s", .valid = folder / "other.bin"});
  EXPECT_THAT(ids_of(other.train), ElementsAre(1, 2, 3));
  EXPECT_THAT(ids_of(other.valid), ElementsAre(5));
  std::filesystem::create_symlink(folder / "s/train_1.bin", folder / "link.bin");
  const TokenData same = load_token_data({.path = folder / "s", .valid = folder / "link.bin"});
  EXPECT_THAT(ids_of(same.train), ElementsAre(1, 2));
  EXPECT_THAT(ids_of(same.valid), ElementsAre(3));
  write(folder / "t/a.txt", bytes_of("ab"));
  write(folder / "t/b.txt", bytes_of("ba"));
  const TokenData text = load_token_data({.path = folder / "t", .valid = folder / "t/b.txt"});
  EXPECT_THAT(ids_of(text.train), ElementsAre(0, 1));
  EXPECT_THAT(ids_of(text.valid), ElementsAre(1, 0));
  EXPECT_THAT(error_of([&] { load_token_data({.path = folder / "t", .valid = folder / "t"}); }),
              HasSubstr("t: all files are for validation"));
}

TEST(TokenData, NeverTrainsOnTestShards) {
  const TempFolder folder;
  write(folder / "s/latest_000000.bin", {1, 0});
  write(folder / "s/news_test_000000.bin", {2, 0});
  write(folder / "s/Test.bin", {3, 0});
  write(folder / "s/VAL.bin", {4, 0});
  const TokenData data = load_token_data({.path = folder / "s"});
  EXPECT_THAT(ids_of(data.train), ElementsAre(1));
  EXPECT_THAT(ids_of(data.valid), ElementsAre(4));
  EXPECT_THAT(data.of_test, ElementsAre(folder / "s/Test.bin", folder / "s/news_test_000000.bin"));
  write(folder / "other.bin", {5, 0});
  EXPECT_THAT(ids_of(load_token_data({.path = folder / "s", .valid = folder / "other.bin"}).train), ElementsAre(1));
  std::filesystem::remove(folder / "s/latest_000000.bin");
  EXPECT_THAT(ids_of(load_token_data({.path = folder / "s"}).train), ElementsAre(3, 2)) << "there are no others";
}

TEST(TokenData, RefusesTextBesideShards) {
  const TempFolder folder;
  write(folder / "d/a/0.bin", {1, 0, 2, 0, 3, 0});
  write(folder / "d/1.bin", {4, 0, 5, 0, 6, 0});
  std::filesystem::create_directories(folder / "d/x.bin");
  std::filesystem::copy(kGolden + "vocab.json", folder / "d/vocab.json");
  std::filesystem::copy(kGolden + "merges.txt", folder / "d/merges.txt");
  EXPECT_EQ(load_token_data({.path = folder / "d"}).train.size(), 5) << "merges.txt is no text";
  write(folder / "t.txt", bytes_of("text"));
  EXPECT_THAT(error_of([&] { load_token_data({.path = folder / "d", .valid = folder / "t.txt"}); }),
              HasSubstr("t.txt: is not a shard, but the training data is; use *.bin files"));
  EXPECT_THAT(error_of([&] { load_token_data({.path = folder / "t.txt", .valid = folder / "d"}); }),
              HasSubstr("d: is a shard, but the training data is text"));
  write(folder / "d/a/story.txt", bytes_of("text"));
  EXPECT_THAT(error_of([&] { load_token_data({.path = folder / "d"}); }),
              HasSubstr("d: has text files and shards (*.bin); name one kind of file"));
}

TEST(TokenData, LimitsIdsToTheVocabularyOfTheHeader) {
  const TempFolder folder;
  write(folder / "a.bin", shard_bytes({20240520, 1, 3, 9}, {1, 9, 2}));
  const TokenData data = load_token_data({.path = folder / "a.bin"});
  EXPECT_EQ(data.tokenizer, nullptr);
  EXPECT_THAT(error_of([&] { ids_of(data.train); }), HasSubstr("a.bin: token 1 is 9, expected ids below 9"));
}

TEST(TokenData, HeaderAndTokenizerMustHaveEqualVocabularySizes) {
  const TempFolder folder;
  for (const int32_t vocabulary : {499, 501, INT32_MAX}) {
    write(folder / "a.bin", shard_bytes({20240520, 1, 3, vocabulary}, {1, 2, 3}));
    EXPECT_THAT(error_of([&] { load_token_data({.path = folder / "a.bin", .tokenizer = kGolden + "vocab.json"}); }),
                HasSubstr("a.bin: its header states a vocabulary of " + std::to_string(vocabulary) +
                          " tokens, but the tokenizer has 500; use the tokenizer of the shards"));
  }
}

TEST(TokenData, ErrorsOfCharactersNameTheFile) {
  const TempFolder folder;
  CharTokenizer({U'a', U'b'}).save(folder.str());
  write(folder / "t.txt", bytes_of("abc"));
  EXPECT_THAT(error_of([&] { load_token_data({.path = folder / "t.txt", .tokenizer = folder.str()}); }),
              HasSubstr("t.txt: tokenizer: the character 'c' at byte 2"));
  write(folder / "l.jsonl", bytes_of("{\"text\": \"a\"}\n{\"text\": \"b\"}"));
  EXPECT_THAT(error_of([&] { load_token_data({.path = folder / "l.jsonl", .tokenizer = folder.str()}); }),
              HasSubstr("tokenizer: has neither an end-of-text token nor a line feed, expected one of them"));
}

TEST(TokenData, CountsTheBytesOfInvalidSequences) {
  const TempFolder folder;
  // Characters: a, b, U+FFFD for one byte, c, U+FFFD for two bytes, U+FFFD itself, d, U+FFFD for one byte.
  write(folder / "a.txt", bytes_of("ab\xff" "c\xe4\xbd\xef\xbf\xbd" "d\xff"));
  const auto added = [&](double fraction) {
    const TokenData data = load_token_data({.path = folder / "a.txt", .valid_fraction = fraction});
    EXPECT_EQ(data.train.size() + data.valid.size(), 8);
    EXPECT_EQ(data.invalid.count, 3);
    return data.added_bytes;
  };
  EXPECT_EQ(added(0.5), 2) << "the first token is not predicted: d, \\xff";
  EXPECT_EQ(added(0.625), 3) << "c | two bytes, U+FFFD, d, \\xff";
  EXPECT_EQ(added(0.875), 5) << "b | \\xff, c, two bytes, U+FFFD, d, \\xff";
  write(folder / "v/1.txt", bytes_of("a"));
  write(folder / "v/2.txt", bytes_of("\xff" "b"));
  EXPECT_EQ(load_token_data({.path = folder / "a.txt", .valid = folder / "v"}).added_bytes, 2);
  write(folder / "v.txt", bytes_of("\xff" "b\xff"));
  EXPECT_EQ(load_token_data({.path = folder / "a.txt", .valid = folder / "v.txt"}).added_bytes, 2) << "b, \\xff";
  EXPECT_EQ(load_token_data({.path = folder / "v"}).invalid.first, (folder / "v/2.txt") + " at byte 0");
}

TEST(TokenData, RefusesMissingAndEmptyText) {
  const TempFolder folder;
  write(folder / "empty.txt", {});
  write(folder / "one.txt", bytes_of("a"));
  EXPECT_THAT(error_of([&] { load_token_data({.path = folder / "none.txt"}); }), HasSubstr("none.txt: no such file"));
  EXPECT_THAT(error_of([&] { load_token_data({.path = folder / "empty.txt"}); }),
              HasSubstr("empty.txt: holds no text"));
  EXPECT_THAT(error_of([&] { load_token_data({.path = folder / "one.txt"}); }),
              HasSubstr("one.txt: has 0 tokens for training and 1 for validation"));
  EXPECT_THAT(error_of([&] { load_token_data({.path = folder / "one.txt", .valid_fraction = 1}); }),
              HasSubstr("the validation fraction is 1"));
}

}  // namespace token_data_test
}  // namespace godwit::data
