// The default training text: the King James Bible of Debian's bible-kjv-text.
#pragma once
#include <string>

namespace godwit::apps {

// Returns `path`, or the Bible's file if `path` is empty. If that file is missing, throws an Error that states how to
// install it.
std::string text_or_bible(const std::string& path);

}  // namespace godwit::apps
