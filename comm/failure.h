// Error texts that name the failed rank. Internal to the transports.
#pragma once
#include <exception>
#include <string>
#include <vector>

namespace godwit {

std::string rank_list(const std::vector<int>& ranks);  // "rank 1"; "ranks 0, 1 and 3"

std::string text_of(const std::exception_ptr& error);  // what() of the exception, or a description if it has none

// "rank r: text"; `text` itself if it already begins with "rank r: ".
std::string with_rank(int rank, const std::string& text);

// Rethrows `error`; the text of an Error becomes with_rank(). Other types, and classes derived from Error, are
// unchanged.
[[noreturn]] void rethrow_from(int rank, const std::exception_ptr& error);

}  // namespace godwit
