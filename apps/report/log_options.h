// Options of the files in which a run reports its progress.
#pragma once
#include <cstdint>

#include "engine/options.h"

namespace godwit::apps {

// What a run writes into its directory while it trains.
struct LogOptions {
  int64_t log_every = 10;    // steps between lines of metrics.jsonl
  bool tensorboard = true;   // write an event file for TensorBoard
  bool trace = false;        // write trace.json
  int64_t trace_steps = 20;  // number of steps in it

  void describe_log(OptionList& list);
};

}  // namespace godwit::apps
