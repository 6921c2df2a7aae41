#include "data/text/tsv_dataset.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "data/file.h"
#include "data/text/documents.h"
#include "engine/check.h"
#include "engine/did_you_mean.h"
#include "engine/excerpt.h"
#include "engine/utf8.h"

namespace godwit::data {
namespace {

constexpr size_t kShown = 5;  // maximum number of labels in a message

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

// Parses an integer in its usual notation; saturates at the largest 64-bit integer.
std::optional<int64_t> as_integer(std::string_view text) {
  int64_t number = 0;
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool padded = digits.starts_with('0') && text != "0";
  if (error == std::errc::invalid_argument || stop != text.data() + text.size() || padded) return std::nullopt;
  return error == std::errc() ? number : text.starts_with('-') ? INT64_MIN : INT64_MAX;
}

bool is_decimal(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error != std::errc::invalid_argument && stop == text.data() + text.size() &&
         text.find('.') != std::string_view::npos;
}

// Not quoted(): argument-dependent lookup finds std::quoted(), which prints control characters.
std::string in_quotes(const std::string& label) { return '"' + excerpt(label) + '"'; }

// "a, b, c, …": at most kShown items.
std::string listed(const std::vector<std::string>& items) {
  std::string text;
  for (size_t i = 0; i < items.size() && i < kShown; ++i) text += (i ? ", " : "") + items[i];
  return text + (items.size() > kShown ? ", …" : "");
}

// The lines of a file; checks the number of fields against the header.
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
      fail(path_, ": the first line names no column \"", name, "\", but ", excerpt(all, 200));
    check(std::ranges::count(columns_, name) == 1, path_, ": the first line names two columns \"", name, "\"");
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

// The rows of a file; row i is line i + 2.
struct Rows {
  std::string path;
  std::vector<std::string> sentences, labels;

  std::string where(size_t row) const { return path + ":" + std::to_string(row + 2) + ": "; }
};

Rows read_rows(const std::string& path, InvalidUtf8* invalid) {
  const std::vector<uint8_t> bytes = read_unpacked(path, "a tab-separated file");
  std::string_view text = utf8_text(bytes, path);
  if (invalid) invalid->add(path, text, bytes.size() - text.size());
  text = text.substr(0, text.find_last_not_of(" \r\n") + 1);
  Table table(path, text);
  const size_t sentence = table.column("sentence"), label = table.column("label");
  Rows rows{.path = path, .sentences = {}, .labels = {}};
  while (table.next()) {
    rows.sentences.emplace_back(table.field(sentence));
    rows.labels.emplace_back(table.field(label));
    check(is_utf8(rows.labels.back()), table.where(), "the label is not UTF-8");  // the label is written to config.json
  }
  check(!rows.labels.empty(), path, ": holds no sentence");
  return rows;
}

[[noreturn]] void refuse_target(const Rows& rows, size_t row) {
  fail(rows.where(row), "label ", in_quotes(rows.labels[row]),
       " looks like a regression target, which is not supported ", "yet; expected classes as names or whole numbers");
}

// Classes 0 … K-1 from labels that are whole numbers.
std::vector<std::string> numbered_classes(const Rows& rows, std::vector<int64_t> numbers) {
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  constexpr const char* kRemedy = "; renumber the classes from 0 on, or use names that are not numbers";
  const auto label_of = [&](int64_t number) { return excerpt(*std::ranges::find(rows.labels, number, as_integer)); };
  check(numbers.front() >= 0, rows.path, ": label \"", label_of(numbers.front()),
        "\" is below 0, expected 0 to K-1 for K classes", kRemedy);
  std::vector<std::string> missing;
  int64_t next = 0;
  for (const int64_t number : numbers) {
    for (; next < number && missing.size() <= kShown; ++next) missing.push_back(std::to_string(next));
    next = number + (number < INT64_MAX);
  }
  check(missing.empty(), rows.path, ": labels are whole numbers up to ", label_of(numbers.back()), ", but ",
        listed(missing), missing.size() == 1 ? " is" : " are", " missing", kRemedy);
  std::vector<std::string> classes;
  for (const int64_t number : numbers) classes.push_back(std::to_string(number));
  return classes;
}

std::vector<std::string> classes_of(const Rows& rows) {
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < rows.labels.size(); ++i) {
    if (is_decimal(rows.labels[i])) refuse_target(rows, i);
    if (const auto number = as_integer(rows.labels[i])) numbers.push_back(*number);
  }
  std::vector<std::string> classes = rows.labels;
  std::ranges::sort(classes);
  classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
  if (numbers.size() == rows.labels.size()) classes = numbered_classes(rows, std::move(numbers));
  check(classes.size() > 1, rows.path, ": all labels are ", in_quotes(classes.front()),
        ", but a classifier needs at least two classes");
  constexpr size_t kMost = 1 << 16;  // as many as a config.json may have
  check(classes.size() <= kMost, rows.path, ": has ", classes.size(), " classes, the limit is ", kMost,
        "; check that the column of labels is the right one");
  return classes;
}

// Throws for labels that are not among the classes. `row`: the first row with such a label.
[[noreturn]] void refuse_labels(const Rows& rows, size_t row, const std::unordered_map<std::string, int32_t>& index,
                                const KnownClasses& known, bool numbered) {
  std::vector<std::string> unknown, classes;
  std::unordered_set<std::string> seen;
  for (size_t i = row; i < rows.labels.size(); ++i)
    if (!index.contains(rows.labels[i]) && seen.insert(rows.labels[i]).second)
      unknown.push_back(in_quotes(rows.labels[i]));
  for (const std::string& name : known.names)
    classes.push_back((numbered ? std::to_string(classes.size()) + " " : "") + in_quotes(name));
  const bool is_number = as_integer(rows.labels[row]).has_value();  // any other number would be near
  const std::string near = is_number ? "" : nearest(excerpt(rows.labels[row]), known.names);
  fail(rows.where(row), unknown.size() == 1 ? "label " : "labels ", listed(unknown),
       unknown.size() == 1 ? " is" : " are", " none of the ", classes.size(),
       numbered ? " numbers of classes" : " classes", " of ", known.origin, " (", listed(classes), ")",
       near.empty() ? "" : "; did you mean '" + near + "'?", known.remedy.empty() ? "" : "; " + known.remedy);
}

TsvDataset labeled(Rows rows, const KnownClasses& known) {
  std::unordered_map<std::string, int32_t> index;
  for (const std::string& name : known.names) index.emplace(name, static_cast<int32_t>(index.size()));
  const auto is_name = [&](const std::string& label) { return index.contains(label); };
  const auto is_whole = [](const std::string& label) { return as_integer(label).has_value(); };
  TsvDataset text{.sentences = {}, .labels = {}, .classes = known.names};
  text.numbered =
      known.numbered.value_or(std::ranges::all_of(rows.labels, is_whole) && !std::ranges::all_of(rows.labels, is_name));
  if (text.numbered) {
    index.clear();
    for (size_t i = 0; i < known.names.size(); ++i) index.emplace(std::to_string(i), static_cast<int32_t>(i));
  }
  for (size_t i = 0; i < rows.labels.size(); ++i) {
    const auto found = index.find(rows.labels[i]);
    if (found == index.end() && is_decimal(rows.labels[i])) refuse_target(rows, i);
    if (found == index.end()) refuse_labels(rows, i, index, known, text.numbered);
    text.labels.push_back(found->second);
  }
  text.sentences = std::move(rows.sentences);
  return text;
}

}  // namespace

TsvDataset read_tsv_dataset(const std::string& path, InvalidUtf8* invalid) {
  Rows rows = read_rows(path, invalid);
  KnownClasses own{.names = classes_of(rows), .numbered = false, .origin = path, .remedy = {}};
  return labeled(std::move(rows), own);
}

TsvDataset read_tsv_dataset(const std::string& path, const KnownClasses& known, InvalidUtf8* invalid) {
  return labeled(read_rows(path, invalid), known);
}

}  // namespace godwit::data
