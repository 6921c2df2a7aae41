// Counts the words of many texts.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace godwit::data {

// Reads the next text into `text`, or returns false at the end. Never called concurrently.
using TextReader = std::function<bool(std::string& text)>;
// Calls add(word) for each word of a text. Called concurrently.
using WordFinder = std::function<void(std::string_view text, const std::function<void(std::string_view word)>& add)>;
using CountedWord = std::pair<std::string, int64_t>;  // a word and its number of occurrences

// The words of all texts with their counts, sorted. Counts on context().threads threads.
std::vector<CountedWord> count_words(const TextReader& next, const WordFinder& find);

}  // namespace godwit::data
