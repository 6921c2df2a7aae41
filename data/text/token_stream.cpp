#include "data/text/token_stream.h"

#include <algorithm>

#include "engine/check.h"
#include "engine/hash.h"

namespace godwit::data {
namespace {

template <class Id>
std::shared_ptr<const std::vector<Id>> stored(const std::vector<int32_t>& tokens) {
  return std::make_shared<const std::vector<Id>>(tokens.begin(), tokens.end());
}

// Copies ids and returns the largest.
template <class Id>
uint32_t copy(const void* data, int64_t first, std::span<int32_t> to) {
  const Id* from = static_cast<const Id*>(data) + first;
  uint32_t largest = 0;
  for (size_t i = 0; i < to.size(); ++i) {
    largest = std::max<uint32_t>(largest, from[i]);
    to[i] = static_cast<int32_t>(from[i]);
  }
  return largest;
}

}  // namespace

TokenStream::TokenStream(const std::vector<int32_t>& tokens) {
  const auto [low, high] = std::ranges::minmax_element(tokens);
  check(tokens.empty() || *low >= 0, "token stream: an id is ", tokens.empty() ? 0 : *low, ", expected at least 0");
  if (tokens.empty()) return;
  if (*high <= UINT16_MAX) {
    const auto ids = stored<uint16_t>(tokens);
    *this = TokenStream(ids, ids->data(), 2, std::ssize(*ids), "the text");
  } else {
    const auto ids = stored<uint32_t>(tokens);
    *this = TokenStream(ids, ids->data(), 4, std::ssize(*ids), "the text");
  }
  parts_.front().in_memory = true;
}

TokenStream::TokenStream(std::shared_ptr<const void> owner, const void* data, int width, int64_t count,
                         std::string name) {
  check(width == 2 || width == 4, "token stream: ids of ", width, " bytes, expected 2 or 4");
  check(count >= 0 && (data || count == 0), "token stream: ", count, " tokens", data ? "" : " at a null pointer");
  if (count > 0) parts_.push_back({std::move(owner), data, width, 0, count, 0, std::move(name)});
}

void TokenStream::append(const TokenStream& other) {
  const std::vector<Part> parts = other.parts_;  // `other` may be this stream
  for (Part part : parts) {
    part.begin = size();
    parts_.push_back(std::move(part));
  }
}

TokenStream TokenStream::range(int64_t begin, int64_t end) const {
  check(0 <= begin && begin <= end && end <= size(), "token stream: range [", begin, ", ", end, ") of ", size(),
        " tokens");
  TokenStream result;
  result.vocabulary_ = vocabulary_;
  for (Part part : parts_) {
    const int64_t from = std::max(begin, part.begin), to = std::min(end, part.begin + part.count);
    if (from >= to) continue;
    part.first += from - part.begin;
    part.count = to - from;
    part.begin = result.size();
    result.parts_.push_back(std::move(part));
  }
  return result;
}

void TokenStream::read(int64_t begin, std::span<int32_t> to) const {
  check(begin >= 0 && std::ssize(to) <= size() - begin, "token stream: ", to.size(), " tokens at ", begin, " of ",
        size());
  auto part = std::ranges::upper_bound(parts_, begin, {}, &Part::begin);
  while (!to.empty()) {
    const Part& from = *(part - 1);
    const int64_t skipped = begin - from.begin, count = std::min(std::ssize(to), from.count - skipped);
    const std::span<int32_t> here = to.first(static_cast<size_t>(count));
    const int64_t first = from.first + skipped;
    const uint32_t largest =
        from.width == 2 ? copy<uint16_t>(from.data, first, here) : copy<uint32_t>(from.data, first, here);
    if (largest >= vocabulary_) {
      const auto at = std::ranges::find(here, static_cast<int32_t>(largest)) - here.begin();
      fail(from.name, ": token ", first + at, " is ", largest, ", expected ids below ", vocabulary_,
           ", the size of the vocabulary; use the tokenizer that made these tokens");
    }
    to = to.subspan(here.size());
    begin += count;
    ++part;
  }
}

void TokenStream::check_ids() const {
  std::vector<int32_t> ids(65536);
  for (int64_t at = 0; at < size(); at += std::ssize(ids))
    read(at, std::span(ids).first(static_cast<size_t>(std::min(std::ssize(ids), size() - at))));
}

uint64_t TokenStream::hash() const {
  constexpr int64_t kEnd = 65536;
  Hash hash;
  hash.add(static_cast<uint64_t>(size()));
  std::vector<int32_t> ids;
  TokenStream all = *this;
  all.limit(int64_t{1} << 32);  // read() reports invalid ids by name
  for (const Part& part : parts_) {
    const int64_t count = std::min(kEnd, part.count), last = part.count - count;
    const int64_t step = part.in_memory ? count : std::max<int64_t>(1, last);  // files: both ends, kEnd ids each
    ids.resize(static_cast<size_t>(count));
    for (int64_t at = 0;; at = std::min(at + step, last)) {
      all.read(part.begin + at, ids);
      for (const int32_t id : ids) hash.add(static_cast<uint64_t>(id));
      if (at == last) break;
    }
  }
  return hash.value();
}

}  // namespace godwit::data
