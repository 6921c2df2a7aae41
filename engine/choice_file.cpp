#include "engine/choice_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "engine/check.h"
#include "engine/text_file.h"

namespace godwit {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostMib = 4;  // a choice has about 200 bytes

bool is_value(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '=' ||
           c == '-';
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), allowed);
}

bool is_key(std::string_view text) {
  return !text.empty() && std::none_of(text.begin(), text.end(), [](char c) { return c == '\t' || c == '\n'; });
}

// An exclusive lock among threads and processes, held until destruction.
class Lock {
 public:
  explicit Lock(const std::string& path)
      : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666)) {
    using namespace std::chrono_literals;
    check(descriptor_ >= 0, path, ": cannot be opened: ", std::strerror(errno));
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      const bool waits = error == EWOULDBLOCK || error == EINTR;
      if (waits && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(5ms);
        continue;
      }
      ::close(descriptor_);
      fail(path, ": cannot be locked: ", waits ? "another writer has held the lock for 10 s" : std::strerror(error));
    }
  }
  ~Lock() { ::close(descriptor_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  const int descriptor_;
};

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

Choices parse_choices(std::string_view text, std::string_view header) {
  Choices choices;
  if (!text.starts_with(header) || !text.substr(header.size()).starts_with('\n')) {
    choices.damage = "the first line is not the expected header";
    return choices;
  }
  text.remove_prefix(header.size() + 1);
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    const size_t tab = line.find('\t');
    const bool complete = end != std::string_view::npos && tab != std::string_view::npos;
    const std::string_view value = line.substr(0, tab), key = complete ? line.substr(tab + 1) : "";
    if (!is_value(value) || !is_key(key) || !choices.values.emplace(key, value).second)
      choices.damage = "a line is malformed or repeats a key";
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return choices;
}

ChoiceFile::ChoiceFile(std::string path, const std::string& owner)
    : path_(std::move(path)), header_("Choices of Godwit, format 1, " + owner) {
  check(header_.find('\n') == std::string::npos, "choice file: the owner contains a line break; use one line");
}

Choices ChoiceFile::read() const {
  std::error_code error;
  const fs::file_status status = fs::status(path_, error);
  if (path_.empty() || status.type() == fs::file_type::not_found) return {};
  if (status.type() != fs::file_type::regular) return {{}, "not a regular file, or unreadable"};
  try {
    return parse_choices(read_text_file(path_, kMostMib, ""), header_);
  } catch (const Error& failure) {
    return {{}, failure.what()};
  }
}

std::string ChoiceFile::record(const std::string& key, const std::string& value, const std::string& unusable) const {
  check(!path_.empty(), "no folder for recorded choices; set GODWIT_CACHE");
  check(is_key(key) && is_value(value), path_, ": '", value, "' for '", key, "' is not a valid choice");
  std::error_code error;
  fs::create_directories(fs::path(path_).parent_path(), error);
  check(!error, path_, ": its folder cannot be created: ", error.message());
  const Lock lock(path_ + ".lock");
  Choices now = read();
  const auto [place, added] = now.values.emplace(key, value);
  if (!added && place->second != unusable) return place->second;
  place->second = value;
  std::string text = header_ + "\n";
  for (const auto& [of, choice] : now.values) text.append(choice).append("\t").append(of).append("\n");
  write_text_file(path_, text);
  return value;
}

std::string cache_folder() {
  if (const std::string folder = variable("GODWIT_CACHE"); !folder.empty()) return folder;
  if (const std::string folder = variable("XDG_CACHE_HOME"); !folder.empty()) return folder + "/godwit";
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/godwit";
}

}  // namespace godwit
