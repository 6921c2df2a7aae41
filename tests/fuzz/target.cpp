#include "tests/fuzz/target.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "data/image/jpeg.h"
#include "engine/check.h"
#include "engine/excerpt.h"

namespace godwit::fuzz {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() {
    const char* wanted = std::getenv("TMPDIR");
    std::string name = (wanted                         ? fs::path(wanted)
                        : fs::is_directory("/dev/shm") ? fs::path("/dev/shm")
                                                       : fs::temp_directory_path()) /
                       "godwit-fuzz-XXXXXX";
    check(mkdtemp(name.data()) != nullptr, "no temporary folder ", name);
    path = name;
  }
  ~Folder() {
    std::error_code error;
    fs::remove_all(path, error);
  }
  std::string path;
};

void check_message(const std::string& message) {
  if (!message.empty() && printable(message) == message) return;
  throw std::logic_error("fuzz: an error message is empty or not printable: " + printable(message));
}

}  // namespace

uint8_t Input::byte() {
  const Input taken = first(1);
  return taken.bytes.empty() ? 0 : taken.bytes[0];
}

Input Input::first(size_t count) {
  count = std::min(count, bytes.size());
  const Input taken{bytes.first(count)};
  bytes = bytes.subspan(count);
  return taken;
}

std::string_view Input::text() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

std::vector<Target> all_targets() {
  std::vector<Target> all;
  for (const auto& part : {config_targets(), image_targets(), tensor_targets(), text_targets(), wire_targets()})
    all.insert(all.end(), part.begin(), part.end());
  std::ranges::sort(all, std::less<std::string>(), &Target::name);
  return all;
}

bool run(const Target& target, std::span<const uint8_t> bytes) {
  try {
    target.read({bytes});
    return true;
  } catch (const Error& error) {
    check_message(error.what());
  } catch (const data::DecodeError& error) {
    check_message(error.what());
  }
  return false;
}

std::string folder() {
  static const Folder folder;
  return folder.path;
}

std::string path_of(const std::string& name) { return folder() + "/" + name; }

std::string file_of(const Input& input, const std::string& name) {
  const std::string path = path_of(name);
  std::ofstream file(path, std::ios::binary);
  file << input.text();
  check(file.flush().good(), "cannot write ", path);
  return path;
}

}  // namespace godwit::fuzz
