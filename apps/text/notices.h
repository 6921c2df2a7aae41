// Notices at the start of a run.
#pragma once
#include <string>
#include <vector>

#include "apps/report/progress.h"

namespace godwit::apps {

// Prints the notices that are not empty. `progress` may be null.
inline void print_notices(Progress* progress, const std::vector<std::string>& notices) {
  for (const std::string& notice : notices)
    if (progress && !notice.empty()) progress->line("notice: " + notice);
}

// `used`: the tokenizer that the run uses.
inline std::string other_tokenizer_notice(const std::string& init_weights, const std::string& used) {
  return "the initial weights in " + init_weights + " were trained with another tokenizer; this run uses " + used;
}

}  // namespace godwit::apps
