// The text that programs train on if the user names none: the King James Bible of Debian's bible-kjv-text.
#pragma once
#include <string>

namespace godwit::apps {

// `path`, or the Bible's file if `path` is empty. Throws if that file is missing; the message says how to install it.
std::string text_or_bible(const std::string& path);

}  // namespace godwit::apps
