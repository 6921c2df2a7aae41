// EventFile: scalars for TensorBoard. The file has TFRecord frames around Event messages
// (tensorflow/core/util/event.proto).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/report/files.h"

namespace godwit::apps {

using Scalars = std::vector<std::pair<std::string, double>>;  // tag, value

// A TFRecord: length, masked CRC-32C of the length, data, masked CRC-32C of the data.
std::string tfrecord(std::string_view data);
// Event messages; wall_time in seconds since 1970.
std::string version_event(double wall_time);                      // the first event of a file
std::string session_start_event(double wall_time, int64_t step);  // invalidates events of earlier files from `step` on
std::string scalars_event(double wall_time, int64_t step, const Scalars& scalars);

// Creates a file events.out.tfevents.<seconds since 1970>.<host>.<process>. Its name sorts after the other files in the
// folder.
class EventFile {
 public:
  // resumed_step: the step after which the run continues; TensorBoard then ignores later steps of older files. Throws
  // if the file cannot be written.
  EventFile(const std::string& dir, std::optional<int64_t> resumed_step);
  void scalars(int64_t step, const Scalars& scalars);
  void sync() { file_.sync(); }  // syncs the file to disk

 private:
  AppendedFile file_;
};

}  // namespace godwit::apps
