#include "data/image/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/check.h"
#include "engine/philox.h"
#include "tests/data/files.h"

namespace godwit::data {
namespace idx_test {

using testing::AllOf;
using testing::HasSubstr;

Bytes ramp(size_t n) {
  Bytes bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<uint8_t>(i * 7);
  return bytes;
}

std::string error_for(const Bytes& bytes) {
  TempFolder folder;
  const std::string path = folder / "x-ubyte";
  write(path, bytes);
  const std::string error = error_of([&] { read_idx(path); });
  EXPECT_THAT(error, HasSubstr(path));
  return error;
}

TEST(Idx, ReadsPlainAndGzip) {
  TempFolder folder;
  const Bytes bytes = idx_bytes({3, 5, 7}, ramp(105));
  Bytes two = gzip(Bytes(bytes.begin(), bytes.begin() + 50));
  const Bytes second = gzip(Bytes(bytes.begin() + 50, bytes.end()));
  two.insert(two.end(), second.begin(), second.end());
  for (const Bytes& content : {bytes, gzip(bytes), two}) {
    write(folder / "x", content);
    const Idx idx = read_idx(folder / "x");
    EXPECT_EQ(idx.extents, (std::vector<int64_t>{3, 5, 7}));
    EXPECT_EQ(idx.values, ramp(105));
  }
}

TEST(Idx, ReadsEmptyFiles) {
  TempFolder folder;
  write(folder / "x", idx_bytes({0, 4000000000u, 4000000000u}, {}));
  EXPECT_TRUE(read_idx(folder / "x").values.empty());
}

TEST(Idx, NamesEachFormatError) {
  EXPECT_THAT(error_for({}), HasSubstr("empty"));
  EXPECT_THAT(error_for({0, 0, 8}), HasSubstr("too short"));
  EXPECT_THAT(error_for({'P', 'K', 8, 1}), HasSubstr("not an IDX file"));
  EXPECT_THAT(error_for({0, 0, 0x0D, 1, 0, 0, 0, 0}), HasSubstr("element type 13"));
  EXPECT_THAT(error_for({0, 0, 8, 0}), HasSubstr("0 dimensions"));
  EXPECT_THAT(error_for({0, 0, 8, 255}), HasSubstr("255 dimensions"));
  EXPECT_THAT(error_for({0, 0, 8, 3, 0, 0, 0, 1, 0}), HasSubstr("header ends within its 3 dimensions"));
  EXPECT_THAT(error_for(idx_bytes({3, 5}, ramp(14))), AllOf(HasSubstr("3x5"), HasSubstr("truncated")));
  EXPECT_THAT(error_for(idx_bytes({3, 5}, ramp(16))), HasSubstr("more data follows"));
  EXPECT_THAT(error_for(idx_bytes({0xffffffff, 0xffffffff, 0xffffffff}, ramp(9))), HasSubstr("truncated"));
}

TEST(Idx, NamesEachFormatErrorInsideGzip) {
  EXPECT_THAT(error_for(gzip({})), HasSubstr("is empty"));
  EXPECT_THAT(error_for(gzip(idx_bytes({3, 5}, ramp(14)))), AllOf(HasSubstr("has 14"), HasSubstr("truncated")));
  EXPECT_THAT(error_for(gzip(idx_bytes({3, 5}, ramp(16)))), HasSubstr("more data follows"));
  EXPECT_THAT(error_for(gzip(idx_bytes({0xffffffff, 0xffffffff, 0xffffffff}, ramp(9)))), HasSubstr("truncated"));

  const Bytes good = gzip(idx_bytes({100, 10}, ramp(1000)));
  for (size_t cut = 2; cut < good.size(); ++cut)
    EXPECT_THAT(error_for({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(cut)}), HasSubstr("truncated"));
  Bytes corrupt = good;
  corrupt[good.size() - 6] ^= 1;  // corrupts the checksum
  EXPECT_THAT(error_for(corrupt), HasSubstr("corrupt"));
  Bytes longer = good;
  longer.insert(longer.end(), {1, 2, 3});
  EXPECT_THAT(error_for(longer), HasSubstr("3 bytes follow the gzip data"));
}

// Data beyond the size in the header is not read: tested with a sparse file of 1 TiB, and a small gzip file that
// inflates to much more.
TEST(Idx, ReadsNoMoreThanTheHeaderStates) {
  TempFolder folder;
  write(folder / "sparse", idx_bytes({3, 5}, ramp(15)));
  std::filesystem::resize_file(folder / "sparse", uint64_t{1} << 40);
  EXPECT_THAT(error_of([&] { read_idx(folder / "sparse"); }),
              AllOf(HasSubstr("sparse"), HasSubstr("more data follows")));

  Bytes packed = gzip(idx_bytes({3, 5}, Bytes(10 << 20)));
  packed.resize(packed.size() - 8);  // a reader that reads to the end would report truncation
  EXPECT_THAT(error_for(packed), HasSubstr("more data follows"));
}

TEST(Idx, NamesUnreadableFiles) {
  TempFolder folder;
  EXPECT_THAT(error_of([&] { read_idx(folder / "none"); }), HasSubstr("none: no such file"));
  EXPECT_THAT(error_of([&] { read_idx(folder.str()); }), HasSubstr("is a folder"));
  EXPECT_THAT(error_of([&] { read_idx("/dev/zero"); }), HasSubstr("not a regular file"));
}

// For any bytes, the reader returns or throws Error. It must not crash (asan) or allocate what a corrupt header claims.
TEST(Idx, SurvivesRandomCorruption) {
  TempFolder folder;
  const Bytes plain = idx_bytes({7, 3, 5}, ramp(105)), packed = gzip(plain);
  RandomStream random(1, Purpose::test);
  int refused = 0;
  for (int i = 0; i < 4000; ++i) {
    Bytes bytes = i % 2 ? plain : packed;
    for (uint32_t flips = random.below(4); flips-- > 0;)
      bytes[random.below(static_cast<uint32_t>(bytes.size()))] = static_cast<uint8_t>(random.next());
    if (random.below(3) == 0) bytes.resize(random.below(static_cast<uint32_t>(bytes.size() + 20)));
    write(folder / "x", bytes);
    try {
      const Idx idx = read_idx(folder / "x");
      int64_t total = 1;
      for (int64_t extent : idx.extents) total *= extent;
      EXPECT_EQ(static_cast<int64_t>(idx.values.size()), total);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 3500);
}

}  // namespace idx_test
}  // namespace godwit::data
