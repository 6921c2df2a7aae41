// Error texts that name the failed rank. Internal to the transports.
#pragma once
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace godwit {

std::string rank_list(const std::vector<int>& ranks);  // "rank 1" or "ranks 0, 1 and 3"

std::string text_of(const std::exception_ptr& error);  // what() of the exception, or a description if it has no what()

// Splits a text that begins with a rank, such as "rank 3: …", into this rank and the rest. For any other text, returns
// `rank` and the text.
std::pair<int, std::string> split_rank(int rank, const std::string& text);

// Returns "rank r: text", or `text` itself if it already names a rank (split_rank()).
std::string with_rank(int rank, const std::string& text);

// Rethrows `error`. The text of an Error becomes with_rank(). Other exceptions, including classes derived from Error,
// are unchanged.
[[noreturn]] void rethrow_from(int rank, const std::exception_ptr& error);

}  // namespace godwit
