// The closest word of a list, for messages about a misspelt name.
#pragma once
#include <string>
#include <vector>

namespace godwit {

// The candidate with the smallest edit distance to `word` (letter case and - versus _ count nothing; the first of
// equals), or "" when none is within a third of the longer word's length, and at least one edit. Words of more than 100
// bytes are near to none; the first 10,000 candidates are compared.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

// "; did you mean 'x'?" or, when nothing is near, the list of the first 30: the end of such a message.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace godwit
