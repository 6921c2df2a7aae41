// ChoiceFile: stores machine-dependent choices, such as the fastest implementation of an operation, for later runs.
#pragma once
#include <map>
#include <string>
#include <string_view>

namespace godwit {

// The content of a file of choices.
struct Choices {
  std::map<std::string, std::string> values;  // by key
  std::string damage;                         // reason why lines were ignored; empty if none were
};

// Reads a file's text: a first line `header`, then lines "value<tab>key". Ignores malformed lines and repeated keys,
// and all lines if the first line is not `header`. A value consists of letters, digits, '_', '=' and '-'.
Choices parse_choices(std::string_view text, std::string_view header);

// A small text file, shared by threads and processes. The first choice recorded for a key is kept.
class ChoiceFile {
 public:
  // `owner`: one line that names the machine and libraries of the choices. Choices of another owner or format are
  // ignored. An empty path means no file: read() returns no choices, record() throws.
  ChoiceFile(std::string path, const std::string& owner);

  const std::string& path() const { return path_; }  // of the file
  // Reads the file; a missing file has no choices and no damage. Never throws for the content of the file.
  Choices read() const;
  // Records a choice, and returns the recorded choice of the key: an older one is kept, unless it is `unusable`. Waits
  // up to 10 s for the lock of the file. Throws an Error if the file cannot be locked or written.
  std::string record(const std::string& key, const std::string& value, const std::string& unusable = "") const;

 private:
  std::string path_, header_;
};

// The folder for files that speed up later runs: $GODWIT_CACHE, otherwise $XDG_CACHE_HOME/godwit, otherwise
// ~/.cache/godwit. "" if none of these variables and HOME is set.
std::string cache_folder();

}  // namespace godwit
