#include "engine/did_you_mean.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <numeric>

#include "engine/excerpt.h"

namespace godwit {
namespace {

// Limits on time and message length: a file may contain any number of names of any length.
constexpr size_t kLongestWord = 100, kMostCompared = 10000, kMostListed = 30;

std::string normalized(std::string word) {
  for (char& c : word) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return word;
}

// Edit distance from a to b: insertions, deletions, replacements and swaps of neighbors (optimal string alignment).
int64_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<int64_t> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(previous);
    previous.swap(row);
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  int64_t best_distance = INT64_MAX;
  if (word.size() > kLongestWord) return best;
  for (size_t i = 0; i < std::min(candidates.size(), kMostCompared); ++i) {
    const std::string& candidate = candidates[i];
    if (candidate.size() > kLongestWord) continue;
    const int64_t distance = edit_distance(normalized(word), normalized(candidate));
    const int64_t limit = std::max<int64_t>(1, static_cast<int64_t>(std::max(word.size(), candidate.size()) / 3));
    if (distance <= limit && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string best = nearest(word, candidates);
  return best.empty() ? "; available: " + excerpts(candidates, kMostListed)
                      : "; did you mean '" + printable(best) + "'?";
}

}  // namespace godwit
