#include "apps/report/event_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/check.h"
#include "tests/support.h"

namespace godwit::apps {
namespace event_file_test {

namespace fs = std::filesystem;

std::string content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The reference was written by TensorBoard's own writer: tests/apps/report/tensorboard/make_events.py.
TEST(EventFile, HasTheBytesOfTensorBoardsWriter) {
  const std::string own =
      tfrecord(version_event(1700000000.25)) + tfrecord(session_start_event(1700000000.5, 301)) +
      tfrecord(scalars_event(1700000001.0, 0, {{"train/loss", 0.1}})) +
      tfrecord(
          scalars_event(1700000002.0, 123456789012,
                        {{"train/loss", -2.5}, {"train/accuracy", 0}, {"evaluation/" + std::string(120, 'x'), 1e30}}));
  const std::string reference = content(GODWIT_SOURCE_DIR "/tests/apps/report/tensorboard/events.reference");
  ASSERT_FALSE(reference.empty());
  EXPECT_TRUE(own == reference);
}

// TensorBoard hides the steps of older files from this step on.
TEST(EventFile, AResumedRunBeginsWithTheStepAfterItsCheckpoint) {
  const TempFolder folder;
  EventFile(folder.str(), 6);
  const std::string file = content(fs::directory_iterator(folder.str())->path().string());
  EXPECT_NE(file.find("\x10\x07\x3a\x02\x08\x01"), std::string::npos) << "step 7, session_log with status START";
}

// TensorBoard reads the files of a folder in the order of their names.
TEST(EventFile, NamesOfLaterFilesSortBehind) {
  const TempFolder folder;
  std::vector<std::string> names;
  for (int i = 0; i < 3; ++i) {
    EventFile(folder.str(), i).scalars(7, {{"a", 1}});
    for (const auto& entry : fs::directory_iterator(folder.str()))
      if (const std::string name = entry.path().filename(); std::find(names.begin(), names.end(), name) == names.end())
        names.push_back(name);
  }
  ASSERT_EQ(names.size(), 3u);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_TRUE(names.front().starts_with("events.out.tfevents.1")) << names.front();
}

TEST(EventFile, NamesTheFileThatCannotBeWritten) {
  const std::string message = error_of([] { EventFile("/proc/godwit", {}); });
  EXPECT_NE(message.find("/proc/godwit/events.out.tfevents."), std::string::npos) << message;
  EXPECT_NE(message.find(": cannot be written (No such file or directory); choose another --run-dir"),
            std::string::npos)
      << message;
}

}  // namespace event_file_test
}  // namespace godwit::apps
