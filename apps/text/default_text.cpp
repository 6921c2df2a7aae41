#include "apps/text/default_text.h"

#include <filesystem>

#include "engine/check.h"

namespace godwit::apps {

std::string text_or_bible(const std::string& path) {
  if (!path.empty()) return path;
  const std::string bible = "/usr/lib/bible.data";
  std::error_code ignored;
  check(std::filesystem::exists(bible, ignored), bible, ": not found; install bible-kjv-text (scripts/setup), or ",
        "pass a text file with --data FILE");
  return bible;
}

}  // namespace godwit::apps
