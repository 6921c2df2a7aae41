// ChoiceFile: stores machine-dependent choices, such as the fastest implementation of an operation, for later runs.
#pragma once
#include <map>
#include <string>
#include <string_view>

namespace godwit {

// The contents of a choice file.
struct Choices {
  std::map<std::string, std::string> values;  // the recorded values, by key
  std::string damage;                         // reason why lines were ignored; empty if none were
};

// Parses the text of a choice file. The first line must be `header`; the other lines are "value<tab>key". Malformed
// lines and repeated keys are ignored. If the first line differs from `header`, all lines are ignored. A value consists
// of letters, digits, '_', '=' and '-'.
Choices parse_choices(std::string_view text, std::string_view header);

// A small text file that threads and processes share. The first choice recorded for a key is kept.
class ChoiceFile {
 public:
  // `owner`: one line that names the machine and the libraries for which the choices are valid. Choices of another
  // owner or format are ignored. With an empty path there is no file: read() returns no choices, and record() throws.
  ChoiceFile(std::string path, const std::string& owner);

  const std::string& path() const { return path_; }  // path of the file
  // Reads the file. A missing file has no choices and no damage. Invalid contents never throw; they are reported as
  // damage.
  Choices read() const;
  // Records a choice and returns the choice that the file then holds for the key. An existing choice is kept unless it
  // equals `unusable`. Waits up to 10 s for the lock of the file. Throws an Error if the file cannot be locked or
  // written.
  std::string record(const std::string& key, const std::string& value, const std::string& unusable = "") const;

 private:
  std::string path_, header_;
};

// The folder for files that speed up later runs: $GODWIT_CACHE, otherwise $XDG_CACHE_HOME/godwit, otherwise
// ~/.cache/godwit. Returns "" if GODWIT_CACHE, XDG_CACHE_HOME and HOME are unset.
std::string cache_folder();

}  // namespace godwit
