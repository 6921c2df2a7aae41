// Saves weights even if the run directory is not writable, for example because the disk is full.
#pragma once
#include <functional>
#include <string>

namespace godwit::apps {

struct Saved {
  std::string folder;
  std::string error;  // reason why `folder` is not the requested folder; empty if it is
};

// Calls save(folder), which throws if it cannot write. On failure, retries every 10 s for `patience_s` seconds, or not
// at all if the run was interrupted. Then calls save() once with a new folder in $TMPDIR or /tmp. `warn` receives the
// first error. Throws if the new folder also cannot be written.
Saved save_with_retries(const std::function<void(const std::string& folder)>& save, const std::string& folder,
                        double patience_s, const std::function<void(const std::string&)>& warn);

}  // namespace godwit::apps
