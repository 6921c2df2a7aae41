#include "data/text/nfc.h"

#include <unicode/uchar.h>
#include <unicode/unorm2.h>

#include <algorithm>

#include "engine/check.h"
#include "engine/utf8.h"

namespace godwit::data {
namespace {

const UNormalizer2& nfc() {
  UErrorCode error = U_ZERO_ERROR;
  static const UNormalizer2* const instance = unorm2_getNFCInstance(&error);
  if (U_FAILURE(error)) fail("tokenizer: the Unicode library has no normalization data: ", u_errorName(error));
  return *instance;
}

bool is_newer_than_9(char32_t code) {  // newer than Unicode 9
  UVersionInfo version;
  u_charAge(static_cast<UChar32>(code), version);
  return version[0] > 9;
}

// Appends the normal form of valid UTF-8.
void append_normalized(std::string_view text, std::string& to) {
  std::u16string units;
  for (size_t at = 0; at < text.size();) {
    const CodePoint code = decode_utf8(text, at);
    if (code.value >= 0x10000) {
      units.push_back(static_cast<char16_t>(0xd7c0 + (code.value >> 10)));
      units.push_back(static_cast<char16_t>(0xdc00 + (code.value & 0x3ff)));
    } else {
      units.push_back(static_cast<char16_t>(code.value));
    }
    at += code.bytes;
  }
  check(units.size() <= INT32_MAX / 4, "tokenizer: ", text.size(), " bytes cannot be normalized at once");
  std::u16string normal(3 * units.size() + 16, u'\0');  // no normal form is more than three times as long
  UErrorCode error = U_ZERO_ERROR;
  const int32_t length = unorm2_normalize(&nfc(), units.data(), static_cast<int32_t>(units.size()), normal.data(),
                                          static_cast<int32_t>(normal.size()), &error);
  check(U_SUCCESS(error), "tokenizer: the text cannot be normalized: ", u_errorName(error));
  for (int32_t at = 0; at < length;) {
    char32_t code = normal[static_cast<size_t>(at++)];
    if (code >= 0xd800 && code < 0xdc00) code = ((code - 0xd7c0) << 10) + (normal[static_cast<size_t>(at++)] - 0xdc00u);
    append_utf8(to, code);
  }
}

}  // namespace

std::string_view normalize_nfc(std::string_view text, std::string& storage) {
  // Text with all bytes below 0xcc has only code points below U+0300, which are normalized.
  if (std::ranges::all_of(text, [](char c) { return static_cast<uint8_t>(c) < 0xcc; })) return text;
  storage.clear();
  size_t valid = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint code = decode_utf8(text, at);
    if (!code.valid || is_newer_than_9(code.value)) {
      append_normalized(text.substr(valid, at - valid), storage);
      storage.append(text.substr(at, code.bytes));
      valid = at + code.bytes;
    }
    at += code.bytes;
  }
  append_normalized(text.substr(valid), storage);
  return storage;
}

}  // namespace godwit::data
