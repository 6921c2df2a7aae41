#include "apps/text/lm_data.h"

#include <filesystem>
#include <utility>

#include "apps/config/saved_config.h"
#include "apps/text/default_text.h"
#include "data/text/bible.h"
#include "data/text/corpus.h"
#include "engine/check.h"

namespace godwit::apps {
namespace {

namespace fs = std::filesystem;

struct Texts {
  data::WordText train, valid;
  std::optional<data::WordText> test;
  data::InvalidUtf8 invalid = {};
};

bool is_there(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The file of a part of the text: `given`, or the first existing file with a usual name in the folder; "" if there is
// none.
std::string file_of(const std::string& folder, const std::string& given, const std::string& part) {
  if (!given.empty()) return given;
  for (const std::string& name : {"ptb." + part + ".txt", part + ".txt", "wiki." + part + ".tokens"})
    if (const fs::path path = fs::path(folder) / name; is_there(path.string())) return path.string();
  return "";
}

// The sentences of some documents, one per line.
data::WordText lines_of(const data::Corpus& corpus, const std::string& name, data::WordSplit split) {
  data::WordText text{.text = {}, .name = name, .split = split, .lines = corpus.lines()};
  for (int64_t i = 0; i < corpus.sentences(); ++i) text.text.append(corpus.sentence(i)).push_back('\n');
  return text;
}

// The packaged Bible is a compressed file.
data::WordText read_text(const std::string& path, data::WordSplit split, data::InvalidUtf8* invalid) {
  if (!data::is_bible_file(path)) return data::read_word_text(path, split, invalid);
  return lines_of(data::read_corpus(path, data::Sentences::lines), path, split);
}

Texts texts_of_folder(const LmDataConfig& options, data::WordSplit split) {
  data::InvalidUtf8 invalid;
  const auto read = [&](const std::string& given, const std::string& part) {
    const std::string path = file_of(options.path, given, part);
    check(!path.empty(), "data folder ", options.path, ": has no ", part, ".txt, ptb.", part, ".txt or wiki.", part,
          ".tokens");
    return read_text(path, split, &invalid);
  };
  Texts texts{.train = read("", "train"), .valid = read(options.valid, "valid"), .test = {}};
  if (!file_of(options.path, options.test, "test").empty()) texts.test = read(options.test, "test");
  texts.invalid = invalid;
  return texts;
}

// Holds out one document in `hold_out` for validation, then one in `hold_out` of the others for the test.
Texts held_out(const std::string& path, const LmDataConfig& options, data::WordSplit split) {
  data::InvalidUtf8 invalid;
  const data::Corpus all = data::read_corpus(path, data::Sentences::lines, &invalid);
  const int64_t every = options.hold_out;
  const int64_t documents = all.documents();
  const std::string lower =
      documents < 3 ? "" : detail::concat("set data.hold_out to at most ", documents - 1, ", or ");
  check(documents > every, path, ": has ", documents, documents == 1 ? " document" : " documents",
        " (separated by blank lines), too few to hold out one of ", every, " twice; ", lower,
        "name the evaluation text with --set data.valid=FILE");
  const auto [rest, valid] = all.hold_out(every);
  const auto [train, test] = rest.hold_out(every);
  return {.train = lines_of(train, path, split),
          .valid = lines_of(valid, path + " (validation)", split),
          .test = lines_of(test, path + " (test)", split),
          .invalid = invalid};
}

Texts load_texts(const LmDataConfig& options) {
  const auto split = options.words == "spaces" ? data::WordSplit::spaces : data::WordSplit::basic;
  std::error_code ignored;
  if (fs::is_directory(options.path, ignored)) return texts_of_folder(options, split);
  const std::string path = text_or_bible(options.path);
  check(!options.valid.empty() || options.test.empty(), "data.test ", options.test,
        " requires data.valid, because without it the test text is held out of ", path);
  if (options.valid.empty()) return held_out(path, options, split);
  data::InvalidUtf8 invalid;
  Texts texts{
      .train = read_text(path, split, &invalid), .valid = read_text(options.valid, split, &invalid), .test = {}};
  if (!options.test.empty()) texts.test = read_text(options.test, split, &invalid);
  texts.invalid = invalid;
  return texts;
}

bool has_unknown_words(const data::WordText& text, const data::WordVocabulary& vocabulary) {
  bool unknown = false;
  text.each_word([&](std::string_view word, int64_t) { unknown = unknown || !vocabulary.id(word); });
  return unknown;
}

// The vocabulary of the training text. Has <unk> if another text has words that the training text lacks.
data::WordVocabulary build_vocabulary(const Texts& texts, int64_t limit) {
  data::WordVocabulary all = data::build_word_vocabulary(texts.train, limit);
  constexpr int64_t kFewest = 3;
  if (all.unknown() || all.size() <= kFewest) return all;
  if (has_unknown_words(texts.valid, all) || (texts.test && has_unknown_words(*texts.test, all)))
    return data::build_word_vocabulary(texts.train, all.size() - 1);
  return all;
}

// vocab.txt in a folder of weights; "" if there is none.
std::string file_of_vocabulary(const fs::path& folder) {
  const fs::path file = folder / "vocab.txt";
  return is_there(file.string()) ? file.string() : "";
}

// The vocabulary file of the run; "" if the training text gives the vocabulary.
std::string vocabulary_file(const LmConfig& config) {
  if (!config.data.vocab.empty()) return config.data.vocab;
  if (const std::string checkpoint = continued_checkpoint(config); !checkpoint.empty())
    return file_of_vocabulary(fs::path(checkpoint).parent_path().parent_path());
  if (config.init_weights.empty()) return "";
  const std::string file = file_of_vocabulary(fs::path(config.init_weights).parent_path());
  check(!file.empty(), config.init_weights, ": has no vocab.txt beside it, so the words of its embeddings are not ",
        "known; name the vocabulary of the run that saved the weights with --vocab FILE");
  return file;
}

std::string count_of(const data::EncodedText& text) {
  return std::to_string(text.tokens.size()) + " tokens" +
         (text.unknown > 0 ? ", " + std::to_string(text.unknown) + " of them outside the vocabulary" : "");
}

}  // namespace

std::shared_ptr<const LmData> load_lm_data(const LmConfig& config) {
  Texts texts = load_texts(config.data);
  const std::string file = vocabulary_file(config);
  auto data = std::make_shared<LmData>(
      LmData{.vocabulary = file.empty() ? build_vocabulary(texts, config.data.vocab_size)
                                        : data::read_word_vocabulary(file, &texts.invalid),
             .train = {},
             .valid = {},
             .test = {}});
  data->invalid = texts.invalid;
  data->notes.push_back({"vocabulary", std::to_string(data->vocabulary.size()) + " words, " +
                                           (file.empty() ? "of the training text" : file)});
  const auto encode = [&](const data::WordText& text, const char* label) {
    data::EncodedText encoded = data::encode_words(text, data->vocabulary);
    data->notes.push_back({label, text.name + ": " + count_of(encoded)});
    return std::move(encoded.tokens);
  };
  data->train = encode(texts.train, "training");
  data->valid = encode(texts.valid, "validation");
  if (texts.test) data->test = encode(*texts.test, "test");
  return data;
}

}  // namespace godwit::apps
