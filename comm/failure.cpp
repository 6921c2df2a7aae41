#include "comm/failure.h"

#include <charconv>
#include <cstdint>
#include <new>
#include <typeinfo>

#include "engine/check.h"

namespace godwit {

std::string rank_list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 < ranks.size() ? ", " : " and ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {  // from the standard library; Pool and the file readers throw detailed errors
    return "out of memory: the system refused an allocation of this process; end other programs, or lower --batch or "
           "the number of ranks on this machine";
  } catch (const std::exception& failure) {
    return failure.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

std::pair<int, std::string> split_rank(int rank, const std::string& text) {
  constexpr size_t kNumber = 5;  // "rank " has five characters
  if (!text.starts_with("rank ")) return {rank, text};
  uint16_t named = 0;
  const auto [end, error] = std::from_chars(text.data() + kNumber, text.data() + text.size(), named);
  const size_t after = static_cast<size_t>(end - text.data());
  if (error != std::errc() || text.compare(after, 2, ": ") != 0) return {rank, text};
  return {named, text.substr(after + 2)};
}

std::string with_rank(int rank, const std::string& text) {
  const auto [named, rest] = split_rank(rank, text);
  return detail::concat("rank ", named, ": ", rest);
}

void rethrow_from(int rank, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& failure) {
    const std::string text = failure.what(), with = with_rank(rank, text);
    if (typeid(failure) != typeid(Error) || text == with) throw;
    throw failure.with_text(with);
  }
}

}  // namespace godwit
