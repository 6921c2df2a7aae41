#include "data/labelled_text.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "data/file.h"
#include "data/utf8.h"
#include "engine/check.h"
#include "engine/excerpt.h"
#include "engine/nearest.h"

namespace godwit::data {
namespace {

constexpr int32_t kLargest = 9999;

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  for (size_t begin = 0; begin <= line.size();) {
    const size_t end = std::min(line.find('\t', begin), line.size());
    fields.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return fields;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \r");
  return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(" \r") - begin + 1);
}

// A whole number as it is usually written.
std::optional<int32_t> as_number(const std::string& text) {
  int32_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && stop == text.data() + text.size() && std::to_string(number) == text;
  return whole && number >= 0 && number <= kLargest ? std::optional(number) : std::nullopt;
}

std::vector<std::string> classes_of(const std::vector<std::string>& labels) {
  int32_t largest = 0;
  const bool numbers = std::ranges::all_of(labels, [&](const std::string& label) {
    const std::optional<int32_t> number = as_number(label);
    largest = std::max(largest, number.value_or(0));
    return number.has_value();
  });
  std::vector<std::string> classes;
  if (numbers) {
    for (int32_t i = 0; i <= largest; ++i) classes.push_back(std::to_string(i));
  } else {
    classes = labels;
    std::ranges::sort(classes);
    classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
  }
  return classes;
}

// The lines of a file, their fields counted against the header.
class Table {
 public:
  Table(const std::string& path, std::string_view text) : path_(path), text_(text) {
    check(!text.empty(), path, ": is empty, expected a tab-separated file");
    for (std::string_view name : fields_of(line())) columns_.emplace_back(trimmed(name));
  }

  size_t column(const std::string& name) const {
    const auto found = std::ranges::find(columns_, name);
    std::string all;
    for (const std::string& column : columns_) all += (all.empty() ? "\"" : ", \"") + column + '"';
    if (found == columns_.end())
      fail(path_, ": its first line names no column \"", name, "\", but ", excerpt(all, 200));
    return static_cast<size_t>(found - columns_.begin());
  }

  bool next() {
    if (text_.empty()) return false;
    fields_ = fields_of(line());
    check(fields_.size() == columns_.size(), where(), fields_.size(), fields_.size() == 1 ? " field" : " fields",
          ", the first line names ", columns_.size());
    return true;
  }

  std::string_view field(size_t column) const {
    const std::string_view text = trimmed(fields_[column]);
    check(!text.empty(), where(), columns_[column], " is blank");
    return text;
  }

  std::string where() const { return path_ + ":" + std::to_string(number_) + ": "; }

 private:
  std::string_view line() {
    const size_t end = std::min(text_.find('\n'), text_.size());
    const std::string_view found = text_.substr(0, end);
    text_.remove_prefix(std::min(end + 1, text_.size()));
    ++number_;
    return found;
  }

  std::string path_;
  std::string_view text_;
  int64_t number_ = 0;
  std::vector<std::string> columns_;
  std::vector<std::string_view> fields_;
};

}  // namespace

LabelledText read_labelled_text(const std::string& path, const std::vector<std::string>& classes) {
  const std::vector<uint8_t> bytes = read_unpacked(path, "a tab-separated file");
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  constexpr std::string_view kMark = "\xef\xbb\xbf";  // some editors begin UTF-8 with it
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  Table table(path, text);
  const size_t sentence = table.column("sentence"), label = table.column("label");
  const std::unordered_set<std::string> known(classes.begin(), classes.end());
  LabelledText result;
  std::vector<std::string> labels;
  while (table.next()) {
    result.sentences.emplace_back(table.field(sentence));
    labels.emplace_back(table.field(label));
    check(is_utf8(labels.back()), table.where(), "the label is not UTF-8");  // it goes into config.json
    if (!classes.empty() && !known.contains(labels.back()))
      fail(table.where(), "label \"", excerpt(labels.back()), "\" is none of the classes",
           suggestion(labels.back(), classes));
  }
  check(!labels.empty(), path, ": holds no sentence");
  result.classes = classes.empty() ? classes_of(labels) : classes;
  std::unordered_map<std::string, int32_t> index;
  for (const std::string& name : result.classes) index.emplace(name, static_cast<int32_t>(index.size()));
  for (const std::string& name : labels) result.labels.push_back(index.at(name));
  return result;
}

}  // namespace godwit::data
