#include "data/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/files.h"

namespace godwit::data {
namespace file_test {

using testing::AllOf;
using testing::HasSubstr;

TEST(File, ReadsUpToALimit) {
  TempFolder folder;
  const Bytes bytes(1000, 7);
  for (const Bytes& content : {bytes, gzip(bytes)}) {
    write(folder / "x", content);
    EXPECT_EQ(read_unpacked(folder / "x", "a file", 1000), bytes);
    EXPECT_THAT(error_of([&] { read_unpacked(folder / "x", "a file", 999); }),
                AllOf(HasSubstr(folder / "x"), HasSubstr("holds more than 999 bytes")));
    EXPECT_EQ(read_beginning(folder / "x", "a file", 10), Bytes(10, 7));
    EXPECT_EQ(read_beginning(folder / "x", "a file", 2000), bytes);
  }
  write(folder / "x", bytes);
  EXPECT_EQ(read_file(folder / "x", "a file", 1000), bytes);
  EXPECT_THAT(error_of([&] { read_file(folder / "x", "a file", 999); }), HasSubstr("has 1000 bytes"));
}

// 30 kB that inflate to 30 MB. Data beyond the limit must not be inflated; inflating it would report the missing
// trailer.
TEST(File, StopsInflatingAtTheLimit) {
  TempFolder folder;
  Bytes bomb = gzip(Bytes(30 << 20));
  ASSERT_LT(bomb.size(), 40000u);
  bomb.erase(bomb.end() - 8, bomb.end());
  write(folder / "x", bomb);
  EXPECT_THAT(error_of([&] { read_unpacked(folder / "x", "a file", 1 << 20); }),
              HasSubstr("holds more than 1 MiB, expected a file of at most this size"));
  EXPECT_THAT(error_of([&] { read_unpacked(folder / "x", "a file"); }), HasSubstr("truncated"));
}

TEST(File, ErrorsStateTheirCause) {
  TempFolder folder;
  EXPECT_EQ(error_of([&] { read_file(folder / "x", "a file"); }), folder / "x" + ": no such file");
  std::filesystem::create_symlink("x", folder / "x");
  EXPECT_EQ(error_of([&] { read_file(folder / "x", "a file"); }),
            folder / "x" + ": cannot be read: Too many levels of symbolic links");
}

TEST(File, ReadsLongGzipFilesOfManyMembers) {
  TempFolder folder;
  Bytes all, packed;
  for (int i = 0; i < 40; ++i) {
    Bytes part(100000 + static_cast<size_t>(i));
    uint32_t state = static_cast<uint32_t>(i) + 1;
    for (uint8_t& byte : part) byte = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
    all.insert(all.end(), part.begin(), part.end());
    const Bytes member = gzip(part);
    packed.insert(packed.end(), member.begin(), member.end());
  }
  write(folder / "x", packed);
  EXPECT_EQ(read_unpacked(folder / "x", "a file"), all);
}

// A sparse file of 8 TiB, more than fits in memory.
TEST(File, NamesTheFileThatDoesNotFitInMemory) {
  if (std::string(GODWIT_SANITIZE) != "") GTEST_SKIP() << "sanitizers terminate the program instead";
  TempFolder folder;
  write(folder / "x", Bytes(3, 1));
  std::error_code unsupported;
  std::filesystem::resize_file(folder / "x", uint64_t{1} << 43, unsupported);
  if (unsupported) GTEST_SKIP() << "the file system does not support files of 8 TiB";
  EXPECT_THAT(error_of([&] { read_file(folder / "x", "a file"); }),
              AllOf(HasSubstr("has 8796093022208 bytes"), HasSubstr("at most 8 GiB")));
  EXPECT_THAT(error_of([&] { read_file(folder / "x", "a file", uint64_t{1} << 60); }),
              AllOf(HasSubstr(folder / "x"), HasSubstr("out of memory: cannot allocate 8796093022208 bytes")));
}

}  // namespace file_test
}  // namespace godwit::data
