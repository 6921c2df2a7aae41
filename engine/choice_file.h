// ChoiceFile: choices that depend on the machine, such as the fastest implementation of an operation, kept for later
// runs.
#pragma once
#include <map>
#include <string>
#include <string_view>

namespace godwit {

// The content of a file of choices.
struct Choices {
  std::map<std::string, std::string> values;  // by key
  std::string damage;                         // why lines were ignored; empty if none were
};

// Reads a file's text: a first line `header`, then lines "value<tab>key". Ignores malformed lines and repeated keys,
// and all lines if the first line is not `header`. A value consists of letters, digits, '_', '=' and '-'.
Choices parse_choices(std::string_view text, std::string_view header);

// A small text file, shared by all threads and processes that use the path: the first choice recorded for a key stays.
class ChoiceFile {
 public:
  // `owner`: what the choices depend on, on one line. Choices of another owner or of another format are ignored.
  // Without a path, there are none.
  ChoiceFile(std::string path, const std::string& owner);

  const std::string& path() const { return path_; }  // of the file
  // Reads the file. There is no damage if it does not exist. Never throws for its content.
  Choices read() const;
  // Records a choice, and returns the choice that the file then has for the key: an older one, unless that is
  // `unusable`. Waits up to 10 s for others that record. Throws an Error if the file cannot be written.
  std::string record(const std::string& key, const std::string& value, const std::string& unusable = "") const;

 private:
  std::string path_, header_;
};

// The folder for files that speed up later runs: $GODWIT_CACHE, otherwise $XDG_CACHE_HOME/godwit, otherwise
// ~/.cache/godwit. "" if none of these variables and HOME is set.
std::string cache_folder();

}  // namespace godwit
