#include "data/text/train_wordpiece.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "data/text/pair_trainer.h"
#include "engine/check.h"
#include "engine/utf8.h"

namespace godwit::data {
namespace {

constexpr std::string_view kContinuation = "##";  // begins a token that continues a word

template <class F>
void each_char(std::string_view word, F&& f) {
  for (size_t at = 0; at < word.size();) {
    const CodePoint code = decode_utf8(word, at);
    f(code.value);
    at += code.bytes;
  }
}

// The most frequent characters, at most `limit`, sorted. Ties go to the lower code point.
std::set<char32_t> alphabet_of(const std::vector<CountedWord>& words, int64_t limit) {
  std::unordered_map<char32_t, int64_t> counts;
  for (const auto& [word, times] : words) each_char(word, [&, n = times](char32_t code) { counts[code] += n; });
  std::vector<std::pair<int64_t, char32_t>> order;
  for (const auto& [code, times] : counts) order.emplace_back(-times, code);
  std::sort(order.begin(), order.end());
  if (static_cast<int64_t>(order.size()) > limit) order.resize(static_cast<size_t>(limit));
  std::set<char32_t> alphabet;
  for (const auto& [times, code] : order) alphabet.insert(code);
  return alphabet;
}

// A trainer of the words. Its tokens are the special tokens and the alphabet; other characters are dropped from words.
PairTrainer trainer_of(const std::vector<CountedWord>& words, const WordPieceTraining& training) {
  std::vector<std::string> tokens{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  std::unordered_map<std::string, int32_t> ids;
  const auto add = [&](const std::string& token) {
    ids.emplace(token, static_cast<int32_t>(tokens.size()));
    tokens.push_back(token);
  };
  const std::set<char32_t> alphabet = alphabet_of(words, training.alphabet);
  std::set<char32_t> inside;
  for (const auto& [word, count] : words) {
    bool first = true;
    each_char(word, [&](char32_t code) {
      if (alphabet.contains(code) && !first) inside.insert(code);
      first = false;
    });
  }
  const auto name = [](char32_t code, bool first) {
    std::string token(first ? "" : kContinuation);
    append_utf8(token, code);
    return token;
  };
  for (char32_t code : alphabet) add(name(code, true));
  for (char32_t code : inside) add(name(code, false));
  check(static_cast<int64_t>(tokens.size()) <= training.size, "train_wordpiece: a vocabulary of ", training.size,
        " tokens has no room for the special tokens and the characters of the text, ", tokens.size(),
        " together; raise the size (data.vocab_size), or lower the alphabet (data.alphabet), which is ",
        training.alphabet);
  std::vector<PairTrainer::Word> pieces;
  for (const auto& [word, count] : words) {
    pieces.push_back({{}, count});
    bool first = true;
    each_char(word, [&](char32_t code) {
      if (alphabet.contains(code)) pieces.back().ids.push_back(ids.at(name(code, first)));
      first = false;
    });
  }
  return PairTrainer(std::move(tokens), std::move(pieces), kContinuation.size());
}

}  // namespace

Vocabulary train_wordpiece(const TextReader& next, const WordPieceTraining& training) {
  check(training.alphabet >= 1, "train_wordpiece: alphabet is ", training.alphabet, ", expected at least 1 character");
  check(training.words.max_word >= 1, "train_wordpiece: max_word is ", training.words.max_word,
        ", expected at least 1");
  const BasicTokenizer splitter({training.words.lower_case, training.words.strip_accents, training.words.split_cjk});
  const auto longest = static_cast<uint32_t>(training.words.max_word);
  const WordFinder find = [&](std::string_view text, const std::function<void(std::string_view)>& add) {
    splitter.each_word(text, 0, text.size(), [&](const Word& word) {
      if (word.chars <= longest) add(word.text);
    });
  };
  PairTrainer trainer = trainer_of(count_words(next, find), training);
  trainer.run(training.size, training.min_frequency);
  return Vocabulary(std::move(trainer.tokens()));
}

Vocabulary train_wordpiece(const std::vector<std::string>& texts, const WordPieceTraining& training) {
  size_t taken = 0;
  const TextReader next = [&](std::string& text) { return taken < texts.size() && (text = texts[taken++], true); };
  return train_wordpiece(next, training);
}

}  // namespace godwit::data
