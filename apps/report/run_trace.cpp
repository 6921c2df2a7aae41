#include "apps/report/run_trace.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <tuple>
#include <utility>

#include "comm/clock_offsets.h"
#include "comm/host_tensor.h"
#include "engine/json-inl.h"

namespace godwit::apps {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kWarmUp = 5;  // steps that load libraries and fill caches

int64_t ns_of(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

// Chrome's unit; three decimals keep nanoseconds.
std::string microseconds(int64_t ns) {
  char text[48];
  std::snprintf(text, sizeof text, "%lld.%03lld", static_cast<long long>(ns / 1000), static_cast<long long>(ns % 1000));
  return text;
}

std::string quoted(const std::string& text) {
  return dump_json(ordered_json(text), -1, false, ordered_json::error_handler_t::replace);
}

std::string metadata(const char* what, int rank, size_t row, const std::string& name) {
  return detail::concat("{\"ph\": \"M\", \"name\": \"", what, "\", \"pid\": ", rank, ", \"tid\": ", row,
                        ", \"args\": {\"name\": ", quoted(name), "}},\n");
}

// Lines of JSON objects, each followed by ",". `zero_ns`: on this rank's clock.
std::string lines_of(const Trace& trace, int rank, int node, int64_t zero_ns) {
  std::string text = metadata("process_name", rank, 0, detail::concat("rank ", rank, " (node ", node, ")"));
  const std::vector<std::string> rows = trace.rows();
  for (size_t row = 0; row < rows.size(); ++row) text += metadata("thread_name", rank, row, rows[row]);
  std::vector<TraceEvent> events = trace.events();
  // An event that contains others comes before them.
  std::stable_sort(events.begin(), events.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return std::tuple(a.row, a.begin, b.end) < std::tuple(b.row, b.begin, a.end);
  });
  for (const TraceEvent& event : events) {
    const int64_t begin = std::max<int64_t>(ns_of(event.begin) - zero_ns, 0);
    const int64_t end = std::max(ns_of(event.end) - zero_ns, begin);
    text +=
        detail::concat("{\"ph\": \"X\", \"name\": ", quoted(event.name), ", \"pid\": ", rank, ", \"tid\": ", event.row,
                       ", \"ts\": ", microseconds(begin), ", \"dur\": ", microseconds(end - begin));
    if (event.bucket >= 0)
      text += detail::concat(", \"args\": {\"bucket\": ", event.bucket, ", \"parameter\": ", quoted(event.parameter),
                             ", \"bytes\": ", event.bytes, "}");
    text += "},\n";
  }
  return text;
}

}  // namespace

RunTrace::RunTrace(std::shared_ptr<Trace> trace, int64_t first, int64_t last, int64_t steps)
    : trace_(std::move(trace)),
      begin_(first + 1 + std::clamp<int64_t>(last - first - steps, 0, kWarmUp)),
      end_(std::min(last, begin_ + steps - 1)) {}

void RunTrace::begin_step(int64_t step) {
  if (trace_ && step == begin_) trace_->record(true);
}

bool RunTrace::end_step(int64_t step) {
  if (!trace_ || step != end_) return false;
  trace_->record(false);
  return true;
}

std::string RunTrace::contents(int64_t last_step) const {
  if (last_step < begin_) return detail::concat("timeline without steps, because the run ended before step ", begin_);
  return detail::concat("timeline of steps ", begin_, " to ", std::min(end_, last_step));
}

// One rank after the other sends its events, so that only rank 0 holds the events of all ranks.
std::string RunTrace::gather(Communicator& comm, int64_t last_step) {
  constexpr const char* kPhase = "trace/broadcast";
  const int world = comm.world->size();
  const auto offsets = clock_offsets(*comm.world, [] { return ns_of(Clock::now()); });
  int64_t zero = ns_of(Clock::now());
  for (const TraceEvent& event : trace_->events()) zero = std::min(zero, ns_of(event.begin));
  zero -= offsets[static_cast<size_t>(comm.rank)].ns;
  const Tensor all_ranks({2 * world}, DType::i64, kCpu);  // first time on rank 0's clock, and number of dropped events
  comm.world->all_gather(cpu_tensor<int64_t>({zero, trace_->dropped()}), all_ranks, kPhase);
  int64_t dropped = 0;
  for (int rank = 0; rank < world; ++rank) {
    zero = std::min(zero, all_ranks.data<int64_t>()[2 * rank]);
    dropped += all_ranks.data<int64_t>()[2 * rank + 1];
  }
  const std::string own = lines_of(*trace_, comm.rank, comm.node(), zero + offsets[static_cast<size_t>(comm.rank)].ns);
  std::string all;
  for (int rank = 0; rank < world; ++rank) {
    const Tensor length = cpu_tensor<int64_t>({std::ssize(own)});
    comm.world->broadcast(length, rank, kPhase);
    const Tensor bytes({length.data<int64_t>()[0]}, DType::u8, kCpu);
    if (rank == comm.rank) std::copy(own.begin(), own.end(), bytes.data<uint8_t>());
    comm.world->broadcast(bytes, rank, kPhase);
    if (comm.rank == 0) all.append(bytes.data<uint8_t>(), bytes.data<uint8_t>() + bytes.numel());
  }
  if (comm.rank != 0) return "";
  int64_t error_ns = 0;
  for (const ClockOffset& offset : offsets) error_ns = std::max(error_ns, offset.error_ns);
  all.resize(all.size() - 2);  // the last ",\n"
  return detail::concat("{\"displayTimeUnit\": \"ms\",\n\"otherData\": {\"first_step\": ", begin_,
                        ", \"last_step\": ", std::min(end_, last_step),
                        ", \"clock_error_us\": ", microseconds(error_ns), ", \"events_dropped\": ", dropped,
                        "},\n\"traceEvents\": [\n", all, "\n]}\n");
}

}  // namespace godwit::apps
