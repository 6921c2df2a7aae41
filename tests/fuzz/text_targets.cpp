// Texts: datasets, vocabularies, tokenizers.

#include "data/file.h"
#include "data/text/byte_bpe_files.h"
#include "data/text/byte_characters.h"
#include "data/text/char_tokenizer.h"
#include "data/text/corpus.h"
#include "data/text/documents.h"
#include "data/text/squad.h"
#include "data/text/squad_features.h"
#include "data/text/squad_metrics.h"
#include "data/text/token_shard.h"
#include "data/text/tokenizer_config.h"
#include "data/text/tokenizer_json.h"
#include "data/text/tsv_dataset.h"
#include "data/text/vocabulary.h"
#include "data/text/word_vocabulary.h"
#include "data/text/wordpiece.h"
#include "engine/text_file.h"
#include "tests/fuzz/target.h"

namespace godwit::fuzz {
namespace {

using namespace data;

Vocabulary small_vocabulary() {
  return Vocabulary({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a", "b", "##a", "##b", "##er", "cat", "e",
                     "##e", "ü", "中", "!", "."});
}

void tsv(Input input) {
  const std::string path = file_of(input);
  const TsvDataset data = read_tsv_dataset(path);
  require(data.classes.size() > 1 && data.sentences.size() == data.labels.size(), "every sentence has a class");
  for (const int32_t label : data.labels) require(label >= 0 && label < std::ssize(data.classes), "labels are classes");
  const TsvDataset again = read_tsv_dataset(path, {data.classes, false, path, ""});
  require(again.labels == data.labels && again.sentences == data.sentences, "known classes give the same labels");
}

void squad(Input input) {
  static const WordPiece tokenizer(small_vocabulary());
  const Squad squad = read_squad(file_of(input));
  for (const SquadQuestion& question : squad.questions)
    for (const SquadAnswer& answer : question.answers)
      if (answer.usable())
        require(squad.contexts[question.context].substr(static_cast<size_t>(answer.begin)).starts_with(answer.text),
                "a usable answer is in its context");
  const SquadFeatures features(squad, tokenizer, {.length = 12, .stride = 4, .max_question = 4});
  for (int64_t i = 0; i < features.size(); ++i) {
    const TextSample sample = features.read(i, 0);
    require(std::ssize(sample.ids) <= 12, "windows have the given length");
    const SquadFeatures::Window& window = features.window(i);
    if (window.end > 0) require(!features.text(i, window.start, window.end).empty(), "an answer has a text");
  }
}

void squad_answers(Input input) {
  static const Squad squad{
      {"the cat"}, {{"1", "who?", 0, {{"the cat", 0}, {"Cat!", 4}}}, {"2", "who?", 0, {{"", -1}}}}, {}};
  const Answers answers = read_answers(file_of(input));
  for (const auto& [id, answer] : answers) {
    const std::string normal = normalize_answer(answer);
    require(normalize_answer(normal) == normal, "a normalized answer stays as it is");
  }
  const SquadScore score = squad_score(squad, answers);
  require(score.exact_match >= 0 && score.exact_match <= 100 && score.f1 >= 0 && score.f1 <= 100,
          "scores are percentages");
}

void vocabulary(Input input) {
  const Vocabulary vocabulary = read_vocabulary(file_of(input));
  write_vocabulary(path_of("copy"), vocabulary);
  require(read_vocabulary(path_of("copy")).tokens() == vocabulary.tokens(), "a vocabulary is read again");
  for (int32_t id = 0; id < vocabulary.size(); ++id)
    require(vocabulary.id(vocabulary.token(id)) == id, "ids are unique");
}

void word_vocabulary(Input input) {
  const WordVocabulary vocabulary = read_word_vocabulary(file_of(input));
  write_word_vocabulary(path_of("copy"), vocabulary);
  require(read_word_vocabulary(path_of("copy")).tokens() == vocabulary.tokens(), "a vocabulary is read again");
}

// The first byte limits the vocabulary.
void word_text(Input input) {
  const int64_t limit = 3 + input.byte();
  const WordText text = read_word_text(file_of(input), WordSplit::spaces);
  const WordVocabulary vocabulary = build_word_vocabulary(text, limit);
  const EncodedText encoded = encode_words(text, vocabulary);
  require(vocabulary.size() <= limit, "the vocabulary keeps its limit");
  write_word_vocabulary(path_of("copy"), vocabulary);
  const WordVocabulary again = read_word_vocabulary(path_of("copy"));
  require(again.tokens() == vocabulary.tokens(), "a vocabulary is read again");
  require(encode_words(text, again).tokens == encoded.tokens, "equal vocabularies give equal ids");
}

void tokenizer_json(Input input) {
  const TokenizerJson tokenizer = read_tokenizer_json(file_of(input));
  write_vocabulary(path_of("copy"), tokenizer.vocabulary);
  require(read_vocabulary(path_of("copy")).tokens() == tokenizer.vocabulary.tokens(), "the vocabulary is read again");
  WordPiece(tokenizer.vocabulary, tokenizer.options).encode("the cat [SEP]");
}

void tokenizer_config(Input input) {
  const auto fields = [](const TokenizerConfig& c) {
    return std::tuple(c.options.lower_case, c.options.strip_accents, c.options.split_cjk, c.model_max_length);
  };
  const TokenizerConfig config = read_tokenizer_config(file_of(input));
  write_tokenizer_config(path_of("copy"), config);
  require(fields(read_tokenizer_config(path_of("copy"))) == fields(config), "a configuration is read again");
}

// The first byte chooses the options.
void wordpiece(Input input) {
  static const Vocabulary vocabulary = small_vocabulary();
  static const WordPiece tokenizers[] = {WordPiece(vocabulary),
                                         WordPiece(vocabulary, {.lower_case = false, .max_word = 3}),
                                         WordPiece(vocabulary, {.strip_accents = false, .split_cjk = false})};
  const uint8_t byte = input.byte();
  for (const Token& token : tokenizers[byte % 3].encode(input.text())) {
    require(token.id >= 0 && token.id < vocabulary.size(), "ids are in the vocabulary");
    require(token.begin <= token.end && token.end <= input.text().size(), "tokens are in the text");
  }
}

// The first byte: how sentences end.
void corpus(Input input) {
  const Sentences rule = input.byte() % 2 ? Sentences::split : Sentences::lines;
  const Corpus corpus = read_corpus(file_of(input), rule);
  for (int64_t i = 0; i < corpus.sentences(); ++i)
    require(corpus.sentence(i).find_first_not_of(std::string_view(" \t\n\v\f\r\0", 7)) != std::string_view::npos,
            "sentences are not blank");
  require(corpus.first_sentence(corpus.documents()) == corpus.sentences(), "documents have all sentences");
  if (corpus.documents() < 2) return;
  const auto [rest, held] = corpus.hold_out(2);
  require(rest.sentences() + held.sentences() == corpus.sentences(), "two parts have all sentences");
}

// The 256 bytes and some tokens of two bytes.
ByteBpeModel small_bpe() {
  ByteBpeModel model;
  for (int byte = 0; byte < 256; ++byte)
    model.tokens.push_back(to_byte_characters(std::string(1, static_cast<char>(byte))));
  model.tokens.insert(model.tokens.end(), {"ab", "abab", "\u0120a", "\u00c3\u00a9", "aa", "<|endoftext|>"});
  model.merges = {{'a', 'b'}, {256, 256}, {' ', 'a'}, {0xc3, 0xa9}, {'a', 'a'}};
  model.added = {{.id = 261, .content = "<|endoftext|>"}};
  return model;
}

// The first byte chooses the pattern and options of the tokenizer.
void bpe(Input input) {
  const uint8_t byte = input.byte();
  ByteBpeModel model = small_bpe();
  model.pattern = static_cast<WordPatternKind>(byte % 3);
  model.ignore_merges = byte & 4;
  model.nfc = byte & 8;
  model.added[0].lstrip = byte & 16;
  model.added[0].rstrip = byte & 32;
  model.added[0].normalized = byte & 64;
  const ByteBpe tokenizer(std::move(model));
  const std::vector<int32_t> ids = tokenizer.encode(input.text());
  if ((byte & (8 | 16 | 32)) == 0) require(tokenizer.decode(ids) == input.text(), "decoding returns the text");
  require(tokenizer.encode(input.text()) == ids, "the cache changes no id");
}

void require_same(const Tokenizer& a, const Tokenizer& b) {
  require(a.fingerprint() == b.fingerprint(), "a tokenizer is read again");
}

void bpe_vocab(Input input) {
  write_text_file(path_of("merges.txt"), "#version: 0.2\n");
  const ByteBpe tokenizer = read_bpe(file_of(input, "vocab.json"), path_of("merges.txt"));
  write_bpe(path_of("copy"), path_of("copied_merges"), tokenizer.model());
  require_same(read_bpe(path_of("copy"), path_of("copied_merges")), tokenizer);
}

void bpe_merges(Input input) {
  write_bpe(path_of("vocab.json"), path_of("unused"), small_bpe());
  const ByteBpe tokenizer = read_bpe(path_of("vocab.json"), file_of(input, "merges.txt"));
  write_bpe(path_of("copy"), path_of("copied_merges"), tokenizer.model());
  require_same(read_bpe(path_of("copy"), path_of("copied_merges")), tokenizer);
}

void bpe_json(Input input) {
  const ByteBpe tokenizer = read_bpe_json(file_of(input));
  write_bpe_json(path_of("copy"), tokenizer.model());
  require_same(read_bpe_json(path_of("copy")), tokenizer);
  tokenizer.encode("the <|endoftext|> cat's 123");
}

void characters(Input input) {
  const CharTokenizer tokenizer = read_characters(file_of(input, kCharactersFile));
  tokenizer.save(folder());
  require_same(read_characters(path_of(kCharactersFile)), tokenizer);
  for (int32_t id = 0; id < tokenizer.size(); ++id)
    require(tokenizer.encode(tokenizer.token(id)) == std::vector<int32_t>{id}, "a character is its token");
}

void jsonl(Input input) {
  each_document(file_of(input, "input.jsonl"),
                [](std::string_view text, size_t) { require(!text.empty(), "no text is empty"); });
}

void shard(Input input) {
  const Shard shard = open_shard(file_of(input));
  require(shard.tokens.size() > 0, "a shard has tokens");
  std::vector<int32_t> ids(static_cast<size_t>(shard.tokens.size()));
  shard.tokens.read(0, ids);
}

}  // namespace

std::vector<Target> text_targets() {
  return {{"tsv", tsv},
          {"squad", squad},
          {"squad_answers", squad_answers},
          {"vocabulary", vocabulary},
          {"word_vocabulary", word_vocabulary},
          {"word_text", word_text},
          {"tokenizer_json", tokenizer_json},
          {"tokenizer_config", tokenizer_config},
          {"wordpiece", wordpiece},
          {"corpus", corpus},
          {"bpe", bpe},
          {"bpe_vocab", bpe_vocab},
          {"bpe_merges", bpe_merges},
          {"bpe_json", bpe_json},
          {"characters", characters},
          {"jsonl", jsonl},
          {"shard", shard}};
}

}  // namespace godwit::fuzz
