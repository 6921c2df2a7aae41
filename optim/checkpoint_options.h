// Options of checkpoints.
#pragma once
#include <cstdint>
#include <string>

#include "engine/options.h"

namespace godwit {

// When a run saves checkpoints, and how many it keeps.
struct CheckpointOptions {
  std::string every = "0";  // steps between checkpoints, or minutes: "10min"; 0: none
  bool at_end = true;       // a checkpoint after the last step
  int64_t keep = 2;         // number of checkpoints kept, besides the best one
  std::string best;         // figure such as "test_top1", whose best checkpoint is kept too; empty: none

  void describe(OptionList& list);  // adds the options
  int64_t steps() const;            // between checkpoints; 0: none by steps
  double seconds() const;           // between checkpoints; 0: none by time
};

// Whether the best value of a figure of metrics.jsonl is the lowest: losses, perplexities and bits per byte.
// tools/report_page/text.py has the same rule.
bool lower_is_better(const std::string& figure);

}  // namespace godwit
