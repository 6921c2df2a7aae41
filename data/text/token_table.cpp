#include "data/text/token_table.h"

#include <utility>

#include "engine/check.h"
#include "engine/excerpt.h"
#include "engine/hash.h"

namespace godwit::data {

TokenTable::TokenTable(std::vector<std::string> tokens, const std::string& kind, std::string_view excluded,
                       const std::string& excluded_name)
    : kind_(kind), tokens_(std::move(tokens)) {
  check(tokens_.size() < size_t{1} << 31, "vocabulary: ", tokens_.size(), " ", kind, "s, expected fewer than 2^31");
  ids_.reserve(tokens_.size());
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& token = tokens_[i];
    check(!token.empty(), "vocabulary: line ", i + 1, " is empty");
    check(token.find_first_of(excluded) == std::string::npos, "vocabulary: the ", kind, " of line ", i + 1,
          " contains ", excluded_name);
    const auto [known, added] = ids_.emplace(token, static_cast<int32_t>(i));
    if (!added)
      fail("vocabulary: '", excerpt(token), "' occurs in line ", known->second + 1, " and again in line ", i + 1);
  }
}

std::optional<int32_t> TokenTable::id(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const std::string& TokenTable::token(int32_t id) const {
  check(id >= 0 && id < size(), "vocabulary: id ", id, " is not among its ", size(), " ", kind_, "s");
  return tokens_[static_cast<size_t>(id)];
}

uint64_t TokenTable::hash() const {
  Hash hash;
  for (const std::string& token : tokens_) hash.add(token);
  return hash.value();
}

}  // namespace godwit::data
