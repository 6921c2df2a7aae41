// Options of checkpoints.
#pragma once
#include <cstdint>
#include <string>

#include "engine/options.h"

namespace godwit {

// The intervals at which a run saves checkpoints, and the number of checkpoints that it keeps.
struct CheckpointOptions {
  std::string every = "0";  // steps between checkpoints, or minutes: "10min"; 0: no checkpoints
  bool at_end = true;       // whether to save a checkpoint after the last step
  int64_t keep = 2;         // number of checkpoints kept, in addition to the best one
  std::string best;         // key of metrics.jsonl such as "test_top1", whose best checkpoint is also kept; empty: none

  void describe(OptionList& list);  // adds the options
  int64_t steps() const;            // steps between checkpoints; 0: none by steps
  double seconds() const;           // seconds between checkpoints; 0: none by time
};

// Whether lower values of this key of metrics.jsonl are better: losses, perplexities and bits per byte.
// tools/report_page/text.py has the same rule.
bool lower_is_better(const std::string& figure);

}  // namespace godwit
