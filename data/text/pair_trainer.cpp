#include "data/text/pair_trainer.h"

#include <algorithm>

namespace godwit::data {
namespace {

uint64_t pair_of(int32_t a, int32_t b) { return uint64_t(uint32_t(a)) << 32 | uint32_t(b); }

}  // namespace

PairTrainer::PairTrainer(std::vector<std::string> tokens, std::vector<Word> words, size_t prefix)
    : tokens_(std::move(tokens)), words_(std::move(words)), prefix_(prefix) {
  for (size_t id = 0; id < tokens_.size(); ++id) ids_.emplace(tokens_[id], static_cast<int32_t>(id));
  for (size_t word = 0; word < words_.size(); ++word) count_pairs(static_cast<uint32_t>(word), words_[word].count);
  for (const auto& [pair, use] : uses_) queue_.push({use.count, pair});
}

// Adds `times` (possibly negative) to the counts of all pairs in a word. Only pairs with the newest piece are recorded,
// because a merge creates no other pairs.
void PairTrainer::count_pairs(uint32_t word, int64_t times) {
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

void PairTrainer::merge(Pair pair) {
  const auto a = static_cast<int32_t>(pair >> 32), b = static_cast<int32_t>(pair & 0xffffffff);
  const std::string name = tokens_[size_t(a)] + tokens_[size_t(b)].substr(prefix_);
  const auto [known, is_new] = ids_.emplace(name, static_cast<int32_t>(tokens_.size()));
  if (is_new) tokens_.push_back(name);
  newest_ = known->second;
  merges_.emplace_back(a, b);
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

void PairTrainer::run(int64_t size, int64_t min_frequency) {
  while (std::ssize(tokens_) < size && !queue_.empty()) {
    const Candidate top = queue_.top();
    queue_.pop();
    const int64_t count = uses_[top.pair].count;
    if (count < std::max<int64_t>(min_frequency, 1)) continue;
    if (count == top.count) merge(top.pair);
    else if (count < top.count) queue_.push({count, top.pair});  // if count > top.count, a newer entry is in the queue
  }
}

}  // namespace godwit::data
