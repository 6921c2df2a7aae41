// Saves weights although the run directory may not be writable, for example because its disk is full.
#pragma once
#include <functional>
#include <string>

namespace godwit::apps {

struct Saved {
  std::string folder;
  std::string error;  // why it is not the folder that was asked for; empty: it is
};

// Calls save(folder), which throws where it cannot write. Tries again every 10 s for `patience_s`, but not in a run
// that is interrupted; then calls it once with a new folder in $TMPDIR or /tmp. `warn` receives the first error. Throws
// when the new folder cannot be written either.
Saved save_with_retries(const std::function<void(const std::string& folder)>& save, const std::string& folder,
                        double patience_s, const std::function<void(const std::string&)>& warn);

}  // namespace godwit::apps
