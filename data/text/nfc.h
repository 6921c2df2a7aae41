// Unicode normalization form C.
#pragma once
#include <string>
#include <string_view>

namespace godwit::data {

// The normalized text: `text` itself if it is normalized, otherwise `storage`, which receives it. Bytes that are not
// UTF-8 stay as they are. Characters that are newer than the installed Unicode library stay as they are.
std::string_view normalize_nfc(std::string_view text, std::string& storage);

}  // namespace godwit::data
