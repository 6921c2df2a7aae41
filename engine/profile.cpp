#include "engine/profile.h"

#include <string>
#include <utility>

#include "engine/context.h"
#include "engine/trace.h"

namespace godwit {

ProfileRange::ProfileRange(std::string_view name, int64_t number, Of of) : name_(name), number_(number) {
  Trace* const trace = context().trace.get();
  if (trace && (of == Of::run || trace->recording())) {
    trace_ = trace;
    begin_ = Clock::now();
  }
  begin_nvtx_range(name, number);
}

ProfileRange::~ProfileRange() {
  end_nvtx_range();
  if (!trace_) return;
  TraceEvent event;
  event.name = name_;
  if (number_ >= 0) event.name.append(" ").append(std::to_string(number_));
  event.begin = begin_, event.end = Clock::now();
  trace_->add(std::move(event));
}

}  // namespace godwit
