// EventFile: scalars for TensorBoard. TFRecord frames around Event messages of tensorflow/core/util/event.proto.
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
std::string version_event(double wall_time);                      // the first of a file
std::string session_start_event(double wall_time, int64_t step);  // voids events of earlier files from `step` on
std::string scalars_event(double wall_time, int64_t step, const Scalars& scalars);

// A new file events.out.tfevents.<seconds since 1970>.<host>.<process>. Its name sorts after those in the folder.
class EventFile {
 public:
  // resumed_step: the run continues after it; TensorBoard then ignores later steps of older files. Throws if the file
  // cannot be written.
  EventFile(const std::string& dir, std::optional<int64_t> resumed_step);
  void scalars(int64_t step, const Scalars& scalars);
  void sync() { file_.sync(); }  // writes to the disk

 private:
  AppendedFile file_;
};

}  // namespace godwit::apps
