// Error texts that name the failed rank. Internal to the transports.
#pragma once
#include <exception>
#include <string>
#include <vector>

namespace godwit {

std::string rank_list(const std::vector<int>& ranks);  // "rank 1"; "ranks 0, 1 and 3"

std::string text_of(const std::exception_ptr& error);  // what() of the exception, or a description if it has none

// "rank r: text"; `text` itself if it already begins so.
std::string with_rank(int rank, const std::string& text);

// Rethrows `error`. An Error gets the prefix "rank r: " if it has none; other types, derived ones included, are
// unchanged.
[[noreturn]] void rethrow_from(int rank, const std::exception_ptr& error);

}  // namespace godwit
