#include "data/text/train_wordpiece.h"

#include <algorithm>
#include <mutex>
#include <queue>
#include <set>
#include <unordered_map>

#include "engine/check.h"
#include "engine/parallel.h"
#include "engine/utf8.h"

namespace godwit::data {
namespace {

constexpr std::string_view kContinuation = "##";
constexpr size_t kTakenAtOnce = 1 << 16;  // bytes of text that a counting thread takes at a time

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using WordCounts = std::unordered_map<std::string, int64_t, TextHash, std::equal_to<>>;
using CountedWord = std::pair<std::string, int64_t>;

void add(WordCounts& counts, std::string_view word, int64_t times) {
  const auto found = counts.find(word);
  if (found != counts.end()) found->second += times;
  else counts.emplace(word, times);
}

// The words of all texts with their counts, sorted.
std::vector<CountedWord> count_words(const TextReader& next, const WordPieceOptions& options) {
  const BasicTokenizer splitter({options.lower_case, options.strip_accents, options.split_cjk});
  std::mutex reading, merging;
  bool ended = false;
  WordCounts total;
  const auto work = [&](int64_t, int64_t) {
    WordCounts counts;
    std::vector<std::string> texts;
    while (true) {
      texts.clear();
      {
        const std::lock_guard lock(reading);
        std::string text;
        for (size_t bytes = 0; !ended && bytes < kTakenAtOnce; bytes += text.size()) {
          ended = true;  // in case next() throws
          ended = !next(text);
          if (!ended) texts.push_back(text);
        }
      }
      if (texts.empty()) break;
      for (const std::string& text : texts)
        splitter.each_word(text, 0, text.size(), [&](const Word& word) {
          if (word.chars <= static_cast<uint32_t>(options.max_word)) add(counts, word.text, 1);
        });
    }
    const std::lock_guard lock(merging);
    for (const auto& [word, times] : counts) add(total, word, times);
  };
  parallel_for(context().threads, 1, work);
  std::vector<CountedWord> words(total.begin(), total.end());
  std::sort(words.begin(), words.end());
  return words;
}

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

class Merger {
 public:
  Merger(const std::vector<CountedWord>& words, const WordPieceTraining& training);
  std::vector<std::string> run();

 private:
  using Pair = uint64_t;  // ids of two adjacent pieces, the first in the upper half
  struct Candidate {
    int64_t count;
    Pair pair;
    // the top of the queue is the most frequent pair; ties go to the oldest
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };
  struct PairUse {
    int64_t count = 0;
    std::vector<uint32_t> words;  // words that contain or once contained the pair
  };
  struct Pieces {
    std::vector<int32_t> ids;
    int64_t count;
  };
  static Pair pair_of(int32_t a, int32_t b) { return uint64_t(uint32_t(a)) << 32 | uint32_t(b); }

  int32_t id_of(const std::string& token);
  void count_pairs(uint32_t word, int64_t times);
  void merge(Pair pair);

  WordPieceTraining training_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<Pieces> words_;
  std::unordered_map<Pair, PairUse> uses_;
  int32_t newest_ = -1;      // piece created by the current merge; -1 during the initial count
  std::vector<Pair> grown_;  // pairs that contain `newest_`
  std::priority_queue<Candidate> queue_;
};

int32_t Merger::id_of(const std::string& token) {
  const auto [known, added] = ids_.emplace(token, static_cast<int32_t>(tokens_.size()));
  if (added) tokens_.push_back(token);
  return known->second;
}

Merger::Merger(const std::vector<CountedWord>& words, const WordPieceTraining& training) : training_(training) {
  for (const char* special : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) id_of(special);
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
  for (char32_t code : alphabet) id_of(name(code, true));
  for (char32_t code : inside) id_of(name(code, false));
  check(static_cast<int64_t>(tokens_.size()) <= training.size, "train_wordpiece: a vocabulary of ", training.size,
        " tokens has no room for the special tokens and the characters of the text, ", tokens_.size(),
        " together; raise the size (data.vocab_size), or lower the alphabet (data.alphabet), now ", training.alphabet);
  for (const auto& [word, count] : words) {
    Pieces pieces{{}, count};
    bool first = true;
    each_char(word, [&](char32_t code) {
      if (alphabet.contains(code)) pieces.ids.push_back(id_of(name(code, first)));
      first = false;
    });
    words_.push_back(std::move(pieces));
    count_pairs(static_cast<uint32_t>(words_.size() - 1), count);
  }
  for (const auto& [pair, use] : uses_) queue_.push({use.count, pair});
}

// Adds `times` (possibly negative) to the counts of all pairs in a word. Only pairs with the newest piece are recorded,
// because a merge creates no other pairs.
void Merger::count_pairs(uint32_t word, int64_t times) {
  const std::vector<int32_t>& ids = words_[word].ids;
  for (size_t i = 1; i < ids.size(); ++i) {
    const Pair pair = pair_of(ids[i - 1], ids[i]);
    PairUse& use = uses_[pair];
    use.count += times;
    if (times < 0 || (newest_ >= 0 && ids[i - 1] != newest_ && ids[i] != newest_)) continue;
    if (use.words.empty() || use.words.back() != word) use.words.push_back(word);
    grown_.push_back(pair);
  }
}

void Merger::merge(Pair pair) {
  const auto a = static_cast<int32_t>(pair >> 32), b = static_cast<int32_t>(pair & 0xffffffff);
  newest_ = id_of(tokens_[size_t(a)] + tokens_[size_t(b)].substr(kContinuation.size()));
  grown_.clear();
  const std::vector<uint32_t> words = std::move(uses_[pair].words);
  for (uint32_t word : words) {
    std::vector<int32_t>& ids = words_[word].ids;
    const int32_t both[] = {a, b};
    if (std::search(ids.begin(), ids.end(), both, both + 2) == ids.end()) continue;  // removed by other merges
    count_pairs(word, -words_[word].count);
    size_t kept = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool found = i + 1 < ids.size() && ids[i] == a && ids[i + 1] == b;
      ids[kept++] = found ? newest_ : ids[i];
      i += found;
    }
    ids.resize(kept);
    count_pairs(word, words_[word].count);
  }
  std::sort(grown_.begin(), grown_.end());
  grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
  for (Pair grown : grown_) queue_.push({uses_[grown].count, grown});
}

std::vector<std::string> Merger::run() {
  while (static_cast<int64_t>(tokens_.size()) < training_.size && !queue_.empty()) {
    const Candidate top = queue_.top();
    queue_.pop();
    const int64_t count = uses_[top.pair].count;
    if (count < std::max<int64_t>(training_.min_frequency, 1)) continue;
    if (count == top.count) merge(top.pair);
    else if (count < top.count) queue_.push({count, top.pair});  // if count > top.count, a newer entry is in the queue
  }
  return std::move(tokens_);
}

}  // namespace

Vocabulary train_wordpiece(const TextReader& next, const WordPieceTraining& training) {
  check(training.alphabet >= 1, "train_wordpiece: alphabet is ", training.alphabet, ", expected at least 1 character");
  check(training.words.max_word >= 1, "train_wordpiece: max_word is ", training.words.max_word,
        ", expected at least 1");
  return Vocabulary(Merger(count_words(next, training.words), training).run());
}

Vocabulary train_wordpiece(const std::vector<std::string>& texts, const WordPieceTraining& training) {
  size_t taken = 0;
  const TextReader next = [&](std::string& text) { return taken < texts.size() && (text = texts[taken++], true); };
  return train_wordpiece(next, training);
}

}  // namespace godwit::data
