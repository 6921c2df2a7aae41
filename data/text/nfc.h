// Unicode normalization form C, with the data of Unicode 9, as in HuggingFace's tokenizers.
#pragma once
#include <string>
#include <string_view>

namespace godwit::data {

// The normalized text: `text` itself if it is normalized, otherwise `storage`, which receives it. Bytes that are not
// UTF-8 and characters newer than Unicode 9 are unchanged, and no marks are moved across them.
std::string_view normalize_nfc(std::string_view text, std::string& storage);

}  // namespace godwit::data
