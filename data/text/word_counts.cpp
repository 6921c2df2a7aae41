#include "data/text/word_counts.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "engine/parallel.h"

namespace godwit::data {
namespace {

constexpr size_t kTakenAtOnce = 1 << 16;  // bytes of text that a counting thread takes at a time

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using WordCounts = std::unordered_map<std::string, int64_t, TextHash, std::equal_to<>>;

void add(WordCounts& counts, std::string_view word, int64_t times) {
  const auto found = counts.find(word);
  if (found != counts.end()) found->second += times;
  else counts.emplace(word, times);
}

}  // namespace

std::vector<CountedWord> count_words(const TextReader& next, const WordFinder& find) {
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
      for (const std::string& text : texts) find(text, [&](std::string_view word) { add(counts, word, 1); });
    }
    const std::lock_guard lock(merging);
    for (const auto& [word, times] : counts) add(total, word, times);
  };
  parallel_for(context().threads, 1, work);
  std::vector<CountedWord> words(total.begin(), total.end());
  std::sort(words.begin(), words.end());
  return words;
}

}  // namespace godwit::data
