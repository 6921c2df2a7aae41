// The closest match from a list, for error messages about a misspelled name.
#pragma once
#include <string>
#include <vector>

namespace godwit {

// Returns the candidate with the smallest edit distance to `word`; ties go to the first. Letter case and the difference
// between - and _ are ignored. Returns "" if the distance exceeds a third of the longer word's length (one edit is
// always allowed). Words longer than 100 bytes never match. Only the first 10,000 candidates are compared.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

// The end of an error message: "; did you mean 'x'?" or, without a close match, the first 30 candidates.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace godwit
