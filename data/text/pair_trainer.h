// PairTrainer: creates tokens by repeatedly merging the most frequent pair of adjacent tokens (Sennrich et al., Neural
// machine translation of rare words with subword units, 2016).
#pragma once
#include <cstdint>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace godwit::data {

// Merges pairs by frequency. Ties go to the pair with the lowest ids, as in HuggingFace's trainers.
class PairTrainer {
 public:
  // A word of the text.
  struct Word {
    std::vector<int32_t> ids;  // tokens of the word
    int64_t count;             // number of occurrences in the text
  };

  // Distinct tokens by id, and the words that consist of these tokens. The name of a merged token is the left name
  // followed by the right name without its first `prefix` bytes.
  PairTrainer(std::vector<std::string> tokens, std::vector<Word> words, size_t prefix);

  // Merges until there are `size` tokens or no pair occurs `min_frequency` times.
  void run(int64_t size, int64_t min_frequency);

  std::vector<std::string>& tokens() { return tokens_; }                              // tokens by id
  const std::vector<std::pair<int32_t, int32_t>>& merges() const { return merges_; }  // in the order of merging

 private:
  using Pair = uint64_t;  // ids of two adjacent tokens, the first in the upper half
  struct Candidate {
    int64_t count;
    Pair pair;
    // The top of the queue is the most frequent pair. Ties go to the pair with the lowest ids.
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };
  struct PairUse {
    int64_t count = 0;
    std::vector<uint32_t> words;  // words that contain, or once contained, the pair
  };

  void count_pairs(uint32_t word, int64_t times);
  void merge(Pair pair);

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<Word> words_;
  size_t prefix_;
  std::vector<std::pair<int32_t, int32_t>> merges_;
  std::unordered_map<Pair, PairUse> uses_;
  int32_t newest_ = -1;      // token created by the current merge; -1 during the initial count
  std::vector<Pair> grown_;  // pairs that contain `newest_`
  std::priority_queue<Candidate> queue_;
};

}  // namespace godwit::data
