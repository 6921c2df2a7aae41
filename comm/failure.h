// What a run over several ranks says about the rank that failed. Internal to the transports.
#pragma once
#include <exception>
#include <string>
#include <vector>

namespace godwit {

std::string rank_list(const std::vector<int>& ranks);  // "rank 1"; "ranks 0, 1 and 3"

std::string text_of(const std::exception_ptr& error);

// "rank r: text", unless the text begins so.
std::string with_rank(int rank, const std::string& text);

// Rethrows with "rank r: " in front, unless it is there; what is derived from Error, or is none, stays as it is.
[[noreturn]] void rethrow_from(int rank, const std::exception_ptr& error);

}  // namespace godwit
