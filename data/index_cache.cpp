// Format: a line with the version; per file "bytes modified width height channels TAB problem TAB path"; a line "end"
// with the number of files and the hash of all before it.
#include "data/index_cache.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <unordered_map>

#include "engine/check.h"
#include "engine/hash.h"

namespace godwit::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kVersion = "godwit-index 1\n";

std::string hash_text(std::string_view text) {
  Hash hash;
  hash.add(std::string(text));
  return std::to_string(hash.value());
}

std::vector<std::string> places(const std::string& root) {
  std::vector<std::string> paths = {root + "/.godwit-index"};
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  const std::string user = cache && *cache ? cache : home && *home ? std::string(home) + "/.cache" : "";
  std::error_code error;
  const fs::path whole = fs::canonical(root, error);
  if (!user.empty() && !error) paths.push_back(user + "/godwit/" + hash_text(whole.string()) + ".index");
  return paths;
}

// The next number and the character that must end it.
bool take(std::string_view& text, char end, auto& number) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop == text.data() + text.size() || *stop != end) return false;
  text.remove_prefix(static_cast<size_t>(stop - text.data()) + 1);
  return true;
}

bool take(std::string_view& text, char end, std::string& word) {
  const size_t length = text.find(end);
  if (length == std::string_view::npos) return false;
  word = text.substr(0, length);
  text.remove_prefix(length + 1);
  return true;
}

using Known = std::unordered_map<std::string, ImageFile>;

Known read_cache(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return {};
  const auto bytes = fs::file_size(path, error);
  if (error) return {};
  std::string text(bytes, '\0');
  std::ifstream in(path, std::ios::binary);
  if (!in.read(text.data(), static_cast<std::streamsize>(bytes))) return {};
  const size_t end = text.rfind("end ");
  if (!text.starts_with(kVersion) || end == std::string::npos) return {};
  std::string_view body(text.data() + kVersion.size(), end - kVersion.size());
  Known known;
  while (!body.empty()) {
    ImageFile file;
    if (!take(body, ' ', file.bytes) || !take(body, ' ', file.modified) || !take(body, ' ', file.width) ||
        !take(body, ' ', file.height) || !take(body, '\t', file.channels) || !take(body, '\t', file.problem) ||
        !take(body, '\n', file.path))
      return {};
    known.emplace(file.path, std::move(file));
  }
  const std::string expected = "end " + std::to_string(known.size()) + " " + hash_text({text.data(), end}) + "\n";
  return std::string_view(text).substr(end) == expected ? known : Known();
}

bool write_whole(const std::string& path, const std::string& text) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_regular_file(path, error)) return false;
  const std::string temporary = path + "." + std::to_string(::getpid());
  std::ofstream out(temporary, std::ios::binary);
  out << text;
  out.close();
  if (out) fs::rename(temporary, path, error);
  if (out && !error) return true;
  fs::remove(temporary, error);
  return false;
}

}  // namespace

std::vector<size_t> recall(const std::string& root, std::vector<ImageFile>& files) {
  Known known;
  for (const std::string& path : places(root))
    if (known.empty()) known = read_cache(path);
  std::vector<size_t> unknown;
  for (size_t i = 0; i < files.size(); ++i) {
    ImageFile& file = files[i];
    const auto found = known.find(file.path);
    if (found == known.end() || found->second.bytes != file.bytes || found->second.modified != file.modified) {
      unknown.push_back(i);
      continue;
    }
    file.width = found->second.width;
    file.height = found->second.height;
    file.channels = found->second.channels;
    file.problem = found->second.problem;
  }
  return unknown;
}

std::string remember(const std::string& root, const std::vector<ImageFile>& files) {
  std::string text(kVersion);
  int64_t count = 0;
  for (const ImageFile& file : files) {
    if (file.problem.starts_with("cannot be read") || file.path.find_first_of("\n\t") != std::string::npos) continue;
    text += detail::concat(file.bytes, ' ', file.modified, ' ', file.width, ' ', file.height, ' ', file.channels, '\t',
                           file.problem, '\t', file.path, '\n');
    ++count;
  }
  text += "end " + std::to_string(count) + " " + hash_text(text) + "\n";
  for (const std::string& path : places(root)) {
    std::error_code error;
    fs::create_directories(fs::path(path).parent_path(), error);
    if (write_whole(path, text)) return path;
  }
  return "";
}

}  // namespace godwit::data
