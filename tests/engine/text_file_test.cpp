#include "engine/text_file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support.h"

namespace godwit {
namespace text_file_test {

TEST(TextFile, IsReadUpToItsLimit) {
  const TempFolder folder;
  const std::string path = folder / "text";
  for (const size_t bytes : {0, 1, 65536, 65537, 1 << 20}) {
    const std::string text(bytes, '\xff');
    std::ofstream(path, std::ios::binary) << text;
    EXPECT_TRUE(read_text_file(path, 1, "") == text) << bytes;
  }
  std::ofstream(path, std::ios::binary) << std::string((1 << 20) + 1, 'x');
  EXPECT_EQ(error_of([&] { read_text_file(path, 1, "; use less"); }), path + ": is longer than 1 MiB; use less");
  EXPECT_EQ(error_of([] { read_text_file("/dev/zero", 1, ""); }), "/dev/zero: is longer than 1 MiB");
}

TEST(TextFile, ErrorsNameThePathAndEndWithTheHint) {
  const TempFolder folder;
  EXPECT_EQ(error_of([&] { read_text_file(folder / "none", 1, "; expected x"); }),
            (folder / "none") + ": cannot be read (No such file or directory); expected x");
  EXPECT_EQ(error_of([&] { read_text_file(folder.str(), 1, "; expected x"); }),
            folder.str() + ": is a folder; expected x");
}

}  // namespace text_file_test
}  // namespace godwit
