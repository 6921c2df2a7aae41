#include "data/text/unicode_table.h"

#include <unicode/uchar.h>
#include <unicode/unorm2.h>

#include <algorithm>

#include "engine/check.h"

namespace godwit::data {
namespace {

int age(char32_t code) {
  UVersionInfo version;
  u_charAge(static_cast<UChar32>(code), version);
  return version[0];
}

// The general category in Unicode 8.0, as an ICU U_GC_*_MASK. Correct only for the categories used here.
uint32_t category(char32_t code) {
  switch (code) {  // code points whose category has changed since
    case 0x166d:
    case 0x111c9:
      return U_GC_PO_MASK;
    case 0x1734:
      return U_GC_MN_MASK;
    case 0x1885:
    case 0x1886:
      return U_GC_LO_MASK;
    case 0xa9bd:
      return U_GC_MC_MASK;
    default:
      break;
  }
  constexpr uint32_t kAskedFor = U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK | U_GC_MN_MASK | U_GC_P_MASK;
  const uint32_t mask = U_GET_GC_MASK(static_cast<UChar32>(code));
  return (mask & kAskedFor) != 0 && age(code) > 8 ? U_GC_CN_MASK : mask;
}

bool is_space(char32_t code) { return u_isUWhiteSpace(static_cast<UChar32>(code)); }

bool is_cleaned(char32_t code) {
  if (code == '\t' || code == '\n' || code == '\r') return false;
  return code == 0xfffd || (category(code) & (U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK)) != 0;
}

bool is_accent(char32_t code) { return category(code) == U_GC_MN_MASK; }

bool is_punctuation(char32_t code) {
  if (code < 0x80) return u_isgraph(static_cast<UChar32>(code)) && !u_isalnum(static_cast<UChar32>(code));
  return (category(code) & U_GC_P_MASK) != 0;
}

bool is_cjk(char32_t code) {
  constexpr std::pair<char32_t, char32_t> kRanges[] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},
                                                       {0x20000, 0x2a6df}, {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf},
                                                       {0x2f800, 0x2fa1f}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [&](const auto& range) { return code >= range.first && code <= range.second; });
}

uint8_t combining_class(char32_t code) {
  const uint8_t known = u_getCombiningClass(static_cast<UChar32>(code));
  return known != 0 && age(code) > 9 ? 0 : known;
}

// The canonical decomposition in Unicode 9.0.
void decompose(char32_t code, std::vector<char32_t>& to) {
  UErrorCode error = U_ZERO_ERROR;
  static const UNormalizer2* const nfd = unorm2_getNFDInstance(&error);
  if (U_FAILURE(error)) fail("tokenizer: the Unicode library has no normalization data: ", u_errorName(error));
  UChar units[32];
  const int32_t length = unorm2_getDecomposition(nfd, static_cast<UChar32>(code), units, 32, &error);
  if (U_FAILURE(error)) fail("tokenizer: no decomposition of U+", std::hex, uint32_t{code}, ": ", u_errorName(error));
  if (length < 0 || age(code) > 9) {
    to.push_back(code);
    return;
  }
  for (int32_t i = 0; i < length;) {
    UChar32 part;
    U16_NEXT(units, i, length, part);
    to.push_back(static_cast<char32_t>(part));
  }
}

// Lower case of letters added in Unicode 16.0 and 17.0; 0 for all other code points.
char32_t new_lower(char32_t code) {
  if (code >= 0x10d50 && code <= 0x10d65) return code + 0x20;
  if (code >= 0x16ea0 && code <= 0x16eb8) return code + 0x1b;
  switch (code) {
    case 0x1c89:
    case 0xa7cc:
    case 0xa7ce:
    case 0xa7d2:
    case 0xa7d4:
    case 0xa7da:
      return code + 1;
    case 0xa7cb:
      return 0x264;
    case 0xa7dc:
      return 0x19b;
    default:
      return 0;
  }
}

uint32_t make(UnicodeTable::Kind kind, char32_t value) { return uint32_t{kind} << 24 | value; }

}  // namespace

UnicodeTable::UnicodeTable(const NormalizerOptions& options) : options_(options), pages_(1) {
  // Enumerates ranges, because most of the million code points are unassigned or for private use.
  const auto add_range = [](const void* table, UChar32 begin, UChar32 end, UCharCategory type) -> UBool {
    UnicodeTable& self = **static_cast<UnicodeTable* const*>(table);
    for (auto code = static_cast<char32_t>(begin); code < static_cast<char32_t>(end); ++code)
      if (type == U_PRIVATE_USE_CHAR) self.set(code, make(removed, code));
      else if (type != U_UNASSIGNED || is_cjk(code) || new_lower(code) != 0) self.set(code, self.make_entry(code));
    return true;
  };
  UnicodeTable* const self = this;
  u_enumCharTypes(add_range, &self);
}

void UnicodeTable::set(char32_t code, uint32_t entry) {
  if (kind(entry) == unchanged) return;
  uint16_t& page = index_[code >> 8];
  if (page == 0) {
    page = static_cast<uint16_t>(pages_.size());
    pages_.emplace_back();
  }
  pages_[page][code & 0xff] = entry;
}

void UnicodeTable::lower(char32_t code, std::vector<char32_t>& to) const {
  if (!options_.lower_case) to.push_back(code);
  // the only letter with a two-character lower case
  else if (code == 0x130) to.insert(to.end(), {U'i', char32_t{0x307}});
  else if (const char32_t letter = new_lower(code)) to.push_back(letter);
  else to.push_back(static_cast<char32_t>(u_tolower(static_cast<UChar32>(code))));
}

uint32_t UnicodeTable::final_entry(char32_t code) const {
  return make(is_space(code) ? space : is_punctuation(code) ? alone : word, code);
}

uint32_t UnicodeTable::make_entry(char32_t code) {
  if (is_cleaned(code)) return make(removed, code);
  if (is_space(code)) return make(space, code);
  std::vector<char32_t> parts, kept;
  if (options_.strip_accents) decompose(code, parts);
  else parts.push_back(code);
  for (char32_t part : parts) {
    if (options_.strip_accents && is_accent(part)) continue;
    if (options_.strip_accents && combining_class(part) != 0) return make(reordered, code);
    lower(part, kept);
  }
  if (kept.empty()) return make(removed, code);
  if (options_.split_cjk && is_cjk(code)) return make(alone, kept[0]);
  if (kept.size() == 1 && kept[0] == code && kind(final_entry(code)) == word) return make(unchanged, code);
  if (kept.size() == 1) return final_entry(kept[0]);
  const auto at = static_cast<char32_t>(several_.size());
  several_.push_back(static_cast<uint32_t>(kept.size()));
  for (char32_t part : kept) several_.push_back(final_entry(part));
  return make(several, at);
}

// Sorts marks by combining class. A mark gets the source bytes of the mark that was at its new position.
std::vector<UnicodeTable::Char> UnicodeTable::normalize(std::vector<Char> codes) const {
  std::erase_if(codes, [](const Char& code) { return is_cleaned(code.entry); });
  struct Part {
    char32_t code;
    uint8_t combining;
    bool first;     // first in the decomposition of its code point
    size_t source;  // index into codes
  };
  std::vector<Part> parts;
  std::vector<char32_t> decomposed;
  for (size_t i = 0; i < codes.size(); ++i) {
    decomposed.clear();
    decompose(codes[i].entry, decomposed);
    for (size_t k = 0; k < decomposed.size(); ++k)
      parts.push_back({decomposed[k], combining_class(decomposed[k]), k == 0, i});
  }
  const auto by_class = [](const Part& a, const Part& b) { return a.combining < b.combining; };
  for (auto begin = parts.begin(); begin != parts.end();) {
    const auto end = std::find_if(begin, parts.end(), [](const Part& part) { return part.combining == 0; });
    if (!std::is_sorted(begin, end, by_class)) {
      size_t source = begin == parts.begin() ? 0 : (begin - 1)->source + 1;
      std::stable_sort(begin, end, by_class);
      for (auto part = begin; part != end; ++part) part->source = part->first ? source++ : source - 1;
    }
    begin = end == parts.end() ? end : end + 1;
  }
  std::vector<Char> chars;
  std::vector<char32_t> lowered;
  for (const Part& part : parts) {
    if (is_accent(part.code)) continue;
    lowered.clear();
    lower(part.code, lowered);
    const Char& from = codes[part.source];
    const bool cjk = options_.split_cjk && is_cjk(from.entry);
    for (char32_t code : lowered) chars.push_back({cjk ? make(alone, code) : final_entry(code), from.begin, from.end});
  }
  return chars;
}

}  // namespace godwit::data
