#include "apps/report/log_options.h"

namespace godwit::apps {

void LogOptions::describe_log(OptionList& list) {
  list.add("log_every", log_every, "steps between lines of metrics.jsonl", kAtLeastOne);
  list.add("tensorboard", tensorboard, "write an event file for TensorBoard");
  list.add("trace", trace, "write trace.json, a timeline of some steps for Perfetto and Chrome").with_flag("--trace");
  list.add("trace_steps", trace_steps, "number of steps in trace.json", {1, 1e6})
      .ignored_if(!trace, "no trace is written; also give --trace, or leave it out");
}

}  // namespace godwit::apps
