#include "data/text/word_pattern.h"

#include "engine/utf8.h"

namespace godwit::data {
namespace {

bool is_line_break(char c) { return c == '\r' || c == '\n'; }

// Bytes of the contraction that begins with the apostrophe at text[at]; 0 if there is none. With `any_case`, 's may end
// with U+017F, whose upper case is S.
size_t contraction(std::string_view text, size_t at, bool any_case) {
  const auto letter = [&](size_t i) -> char {
    if (at + i >= text.size()) return '\0';
    const char c = text[at + i];
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = letter(1), second = letter(2);
  switch (first) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return second == 'e' ? 3 : 0;
    case 'l':
      return second == 'l' ? 3 : 0;
    default:
      return any_case && text.substr(at + 1).starts_with("\u017f") ? 3 : 0;
  }
}

}  // namespace

const char* regex_of(WordPatternKind kind) {
  switch (kind) {
    case WordPatternKind::gpt2:
      return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
    case WordPatternKind::llama3:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
             R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    default:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
             R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  }
}

WordPattern::WordPattern(WordPatternKind kind) : kind_(kind), classes_(CharClasses::instance()) {
  for (char32_t code = 0; code < 128; ++code) ascii_[code] = classes_.of(code);
}

inline WordPattern::Char WordPattern::char_at(std::string_view text, size_t at) const {
  const auto byte = static_cast<uint8_t>(text[at]);
  if (byte < 0x80) return {ascii_[byte], 1};
  const CodePoint code = decode_utf8(text, at);
  return {code.valid ? classes_.of(code.value) : CharClass::other, code.bytes};
}

inline size_t WordPattern::end_of_run(std::string_view text, size_t at, CharClass kind) const {
  while (at < text.size()) {
    const Char c = char_at(text, at);
    if (c.kind != kind) break;
    at += c.bytes;
  }
  return at;
}

// The end of a run of white space. With `line_breaks`, it is after the last line break of the run. Otherwise, the last
// of several characters belongs to the following word.
size_t WordPattern::end_of_spaces(std::string_view text, size_t at, bool line_breaks) const {
  size_t end = at, last = at, behind_break = 0;
  while (end < text.size()) {
    const Char c = char_at(text, end);
    if (c.kind != CharClass::space) break;
    if (is_line_break(text[end])) behind_break = end + 1;
    last = end;
    end += c.bytes;
  }
  if (line_breaks && behind_break > 0) return behind_break;
  return end == text.size() || last == at ? end : last;
}

size_t WordPattern::end_of_gpt2(std::string_view text, size_t at) const {
  if (text[at] == '\'')
    if (const size_t bytes = contraction(text, at, false)) return at + bytes;
  const Char first = char_at(text, at);
  if (first.kind != CharClass::space) return end_of_run(text, at + first.bytes, first.kind);
  if (text[at] == ' ' && at + 1 < text.size()) {
    const Char next = char_at(text, at + 1);
    if (next.kind != CharClass::space) return end_of_run(text, at + 1 + next.bytes, next.kind);
  }
  return end_of_spaces(text, at, false);
}

size_t WordPattern::end_of_llama3(std::string_view text, size_t at) const {
  if (text[at] == '\'')
    if (const size_t bytes = contraction(text, at, true)) return at + bytes;
  const Char first = char_at(text, at);
  const size_t behind = at + first.bytes;
  if (first.kind == CharClass::letter) return end_of_run(text, behind, CharClass::letter);
  if (first.kind == CharClass::number) {
    size_t end = behind;
    for (int digits = kind_ == WordPatternKind::llama3 ? 2 : 0; digits > 0 && end < text.size(); --digits) {
      const Char next = char_at(text, end);
      if (next.kind != CharClass::number) break;
      end += next.bytes;
    }
    return end;
  }
  const bool more = behind < text.size();
  const Char next = more ? char_at(text, behind) : Char{CharClass::space, 0};
  if (next.kind == CharClass::letter && !is_line_break(text[at]))
    return end_of_run(text, behind + next.bytes, CharClass::letter);
  if (first.kind == CharClass::other || (text[at] == ' ' && next.kind == CharClass::other)) {
    size_t end = end_of_run(text, behind, CharClass::other);
    while (end < text.size() && is_line_break(text[end])) ++end;
    return end;
  }
  return end_of_spaces(text, at, true);
}

}  // namespace godwit::data
