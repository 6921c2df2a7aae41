#include "data/text/char_class.h"

#include <unicode/uchar.h>

#include <utility>

namespace godwit::data {
namespace {

using Range = std::pair<char32_t, char32_t>;  // first and last code point

// Letters and numbers of Unicode 15.1 and 16.0, which older libraries do not know.
constexpr Range kNewLetters[] = {{0x1c89, 0x1c8a},   {0xa7cb, 0xa7cd},   {0xa7da, 0xa7dc},   {0x105c0, 0x105f3},
                                 {0x10d4a, 0x10d65}, {0x10d6f, 0x10d85}, {0x10ec2, 0x10ec4}, {0x11380, 0x11389},
                                 {0x1138b, 0x1138b}, {0x1138e, 0x1138e}, {0x11390, 0x113b5}, {0x113b7, 0x113b7},
                                 {0x113d1, 0x113d1}, {0x113d3, 0x113d3}, {0x11bc0, 0x11be0}, {0x13460, 0x143fa},
                                 {0x16100, 0x1611d}, {0x16d40, 0x16d6c}, {0x18cff, 0x18cff}, {0x1e5d0, 0x1e5ed},
                                 {0x1e5f0, 0x1e5f0}, {0x2ebf0, 0x2ee5d}};
constexpr Range kNewNumbers[] = {{0x10d40, 0x10d49}, {0x116d0, 0x116e3}, {0x11bf0, 0x11bf9}, {0x16130, 0x16139},
                                 {0x16d70, 0x16d79}, {0x1ccf0, 0x1ccf9}, {0x1e5f1, 0x1e5fa}};

// The class of all code points of a general category.
CharClass class_of(UCharCategory category) {
  const uint32_t mask = U_MASK(category);
  return (mask & U_GC_L_MASK) != 0   ? CharClass::letter
         : (mask & U_GC_N_MASK) != 0 ? CharClass::number
                                     : CharClass::other;
}

bool is_newer_than_16(char32_t code) {  // newer than Unicode 16
  UVersionInfo version;
  u_charAge(static_cast<UChar32>(code), version);
  return version[0] > 16;
}

}  // namespace

CharClasses::CharClasses() : pages_(1) {
  const auto set = [this](char32_t code, CharClass value) {
    uint16_t& page = index_[code >> 8];
    if (page == 0) {
      page = static_cast<uint16_t>(pages_.size());
      pages_.emplace_back();
    }
    pages_[page][code & 0xff] = value;
  };
  const auto add_range = [](const void* to, UChar32 begin, UChar32 end, UCharCategory category) -> UBool {
    const CharClass value = class_of(category);
    if (value == CharClass::other) return true;
    for (auto code = static_cast<char32_t>(begin); code < static_cast<char32_t>(end); ++code)
      if (!is_newer_than_16(code)) (*static_cast<decltype(&set)>(to))(code, value);
    return true;
  };
  u_enumCharTypes(add_range, &set);
  for (const auto& [first, last] : kNewLetters)
    for (char32_t code = first; code <= last; ++code) set(code, CharClass::letter);
  for (const auto& [first, last] : kNewNumbers)
    for (char32_t code = first; code <= last; ++code) set(code, CharClass::number);
  for (char32_t code = 0; code <= 0x3000; ++code)
    if (u_isUWhiteSpace(static_cast<UChar32>(code))) set(code, CharClass::space);
}

const CharClasses& CharClasses::instance() {
  static const CharClasses classes;
  return classes;
}

}  // namespace godwit::data
