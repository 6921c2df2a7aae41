#include "comm/failure.h"

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

std::string with_rank(int rank, const std::string& text) {
  const std::string prefix = detail::concat("rank ", rank, ": ");
  return text.starts_with(prefix) ? text : prefix + text;
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
