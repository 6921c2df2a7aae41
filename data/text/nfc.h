// Unicode normalization form C with the data of Unicode 9, as in HuggingFace's tokenizers.
#pragma once
#include <string>
#include <string_view>

namespace godwit::data {

// Returns the normalized text: `text` itself if it is normalized, otherwise a view of `storage`, which receives the
// result. Bytes that are not UTF-8 and characters newer than Unicode 9 are unchanged. Marks are not moved across them.
std::string_view normalize_nfc(std::string_view text, std::string& storage);

}  // namespace godwit::data
