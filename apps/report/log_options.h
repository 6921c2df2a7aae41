// Options for the files in which a run reports its progress.
#pragma once
#include <cstdint>

#include "engine/options.h"

namespace godwit::apps {

// Options of metrics.jsonl, TensorBoard's event file and trace.json.
struct LogOptions {
  int64_t log_every = 10;    // steps between lines of metrics.jsonl
  bool tensorboard = true;   // write an event file for TensorBoard
  bool trace = false;        // write trace.json
  int64_t trace_steps = 20;  // number of steps in trace.json

  void describe_log(OptionList& list);
};

}  // namespace godwit::apps
