#include "data/text/squad_metrics.h"

#include <unicode/ucasemap.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <vector>

#include "data/json_file.h"
#include "engine/check.h"
#include "engine/excerpt.h"

namespace godwit::data {
namespace {

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

std::string lower(std::string_view text) {
  std::string result(text);
  if (is_ascii(text)) {
    for (char& c : result)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
    return result;
  }
  UErrorCode error = U_ZERO_ERROR;
  static const UCaseMap* const rules = ucasemap_open("", 0, &error);
  check(rules != nullptr, "squad: the Unicode library has no letter-case data");
  result.resize(3 * text.size());  // lower case is at most three times as long in bytes
  const int32_t length = ucasemap_utf8ToLower(rules, result.data(), static_cast<int32_t>(result.size()), text.data(),
                                              static_cast<int32_t>(text.size()), &error);
  check(U_SUCCESS(error), "squad: an answer of ", text.size(),
        " bytes cannot be lower-cased: ", u_errorName(error));
  result.resize(static_cast<size_t>(length));
  return result;
}

bool is_ascii_punctuation(char32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

// Like Python's str.isspace().
bool is_python_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

// Like \w in regular expressions, without the underscore, which counts as punctuation.
bool is_word(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  const auto code = static_cast<UChar32>(c);
  return u_isalpha(code) || u_getIntPropertyValue(code, UCHAR_NUMERIC_TYPE) != U_NT_NONE;
}

bool is_article(std::string_view word) { return word == "a" || word == "an" || word == "the"; }

// Sorted words of a normalized answer.
std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    words.push_back(text.substr(0, text.find(' ')));
    text.remove_prefix(std::min(words.back().size() + 1, text.size()));
  }
  std::ranges::sort(words);
  return words;
}

// F1 of sorted words; a word counts as often as it occurs in both.
double f1(const std::vector<std::string_view>& prediction, const std::vector<std::string_view>& truth) {
  std::vector<std::string_view> both;
  std::ranges::set_intersection(prediction, truth, std::back_inserter(both));
  if (both.empty()) return 0;
  const double same = static_cast<double>(both.size());
  const double precision = same / static_cast<double>(prediction.size());
  const double recall = same / static_cast<double>(truth.size());
  return 2 * precision * recall / (precision + recall);
}

}  // namespace

Answers read_answers(const std::string& path) {
  const JsonFile file(path, "a file of predictions");
  Answers answers;
  file.root().each_member([&](const std::string& id, const JsonNode& text) { answers[id] = text.text(); });
  return answers;
}

std::string normalize_answer(std::string_view text) {
  const std::string lowered = lower(text);
  std::string result;
  bool space = false;  // a space is pending before the next character
  size_t run = 0;      // start of the last run of word characters in the result
  bool in_run = false;
  const auto end_run = [&] {
    if (in_run && is_article(std::string_view(result).substr(run))) {
      result.resize(run);
      if (!result.empty() && result.back() == ' ') result.pop_back();
      space = true;
    }
    in_run = false;
  };
  const auto* bytes = reinterpret_cast<const uint8_t*>(lowered.data());
  const auto length = static_cast<int32_t>(lowered.size());
  for (int32_t at = 0; at < length;) {
    const int32_t begin = at;
    UChar32 code;
    U8_NEXT_OR_FFFD(bytes, at, length, code);
    const auto c = static_cast<char32_t>(code);
    if (is_ascii_punctuation(c)) continue;
    if (is_python_space(c)) {
      end_run();
      space = true;
      continue;
    }
    const bool word = is_word(c);
    if (!word) end_run();
    if (space && !result.empty()) result += ' ';
    space = false;
    if (word && !in_run) run = result.size(), in_run = true;
    result.append(lowered, static_cast<size_t>(begin), static_cast<size_t>(at - begin));
  }
  end_run();
  return result;
}

SquadScore squad_score(const Squad& squad, const Answers& answers) {
  SquadScore score;
  double exact = 0, f1_sum = 0;
  for (const SquadQuestion& question : squad.questions) {
    ++score.questions;
    const auto found = answers.find(question.id);
    if (found == answers.end()) {
      ++score.unanswered;
      continue;
    }
    check(!question.answers.empty(), "squad: question \"", excerpt(question.id),
          "\" has no answers in the dataset; its prediction cannot be scored");
    const std::string prediction = normalize_answer(found->second);
    const std::vector<std::string_view> words = words_of(prediction);
    double best_exact = 0, best_f1 = 0;
    for (const SquadAnswer& answer : question.answers) {
      const std::string truth = normalize_answer(answer.text);
      if (truth == prediction) best_exact = 1;
      best_f1 = std::max(best_f1, f1(words, words_of(truth)));
    }
    exact += best_exact;
    f1_sum += best_f1;
  }
  check(score.questions > 0, "squad: there is no question to score");
  score.exact_match = 100.0 * exact / static_cast<double>(score.questions);
  score.f1 = 100.0 * f1_sum / static_cast<double>(score.questions);
  return score;
}

}  // namespace godwit::data
