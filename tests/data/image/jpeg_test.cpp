#include "data/image/jpeg.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>

#include "engine/philox.h"
#include "tests/data/golden.h"

namespace godwit::data {
namespace jpeg_test {

using testing::HasSubstr;

const char* const kImages[] = {"colour", "progressive", "grey", "cmyk"};

std::string decode_error(const std::function<void()>& work) {
  try {
    work();
  } catch (const DecodeError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no DecodeError was thrown";
  return "";
}

TEST(Jpeg, ReadsHeaders) {
  for (const auto& [name, channels] : {std::pair{"colour", 3}, {"progressive", 3}, {"grey", 1}, {"cmyk", 4}}) {
    const Bytes bytes = golden_jpeg(name);
    const JpegHeader header = read_jpeg_header(bytes);
    EXPECT_EQ(header.width, 134) << name;
    EXPECT_EQ(header.height, 90) << name;
    EXPECT_EQ(header.channels, channels) << name;
    ASSERT_GT(header.data_from, 100) << name;
    EXPECT_TRUE(has_jpeg_end(std::span(bytes).subspan(static_cast<size_t>(header.data_from)))) << name;
    EXPECT_FALSE(has_jpeg_end(std::span(bytes).first(bytes.size() - 1).subspan(static_cast<size_t>(header.data_from))));
  }
}

// libjpeg itself completes a header that ends in its last bytes.
TEST(Jpeg, RefusesTruncatedHeaders) {
  for (const std::string name : kImages) {
    const Bytes bytes = golden_jpeg(name);
    const auto header = static_cast<size_t>(read_jpeg_header(bytes).data_from);
    for (size_t size = 0; size < header; ++size)
      EXPECT_THROW(read_jpeg_header(std::span(bytes).first(size)), DecodeError) << name << ", " << size << " bytes";
    const std::string error = decode_error([&] { read_jpeg_header(std::span(bytes).first(header - 1)); });
    EXPECT_THAT(error, HasSubstr("truncated")) << name;
  }
}

// Pillow uses the same library with the same settings. The conversion from CMYK is rounded differently, by up to 1.
TEST(Jpeg, MatchesPillow) {
  for (const std::string name : kImages) {
    const Pixels pixels = decode_jpeg(golden_jpeg(name), {0, 0, 134, 90});
    EXPECT_FALSE(pixels.damaged);
    ASSERT_EQ(pixels.rgb.size(), 134u * 90 * 3);
    const int rows[] = {0, 37, 89};
    for (size_t r = 0; r < 3; ++r)
      for (size_t i = 0; i < 134 * 3; ++i)
        ASSERT_NEAR(pixels.rgb[static_cast<size_t>(rows[r]) * 134 * 3 + i], golden()[name]["rows"][r][i].get<int>(),
                    name == "cmyk" ? 1 : 0)
            << name << " row " << rows[r] << " value " << i;
  }
}

// A window must have the pixels of the fully decoded image, at every scale.
TEST(Jpeg, WindowsMatchTheWholeImage) {
  RandomStream random(1, Purpose::test);
  for (const std::string name : {"colour", "colour_410", "progressive", "grey", "cmyk", "large"}) {
    const Bytes bytes = golden_jpeg(name);
    const JpegHeader header = read_jpeg_header(bytes);
    for (const int scale : {1, 2, 4, 8}) {
      const Pixels whole = decode_jpeg(bytes, {0, 0, header.width, header.height}, scale);
      EXPECT_EQ(whole.part.width, (header.width + scale - 1) / scale);
      for (int i = 0; i < 60; ++i) {
        Rect window;
        window.width = 1 + random.below(static_cast<uint32_t>(header.width));
        window.height = 1 + random.below(static_cast<uint32_t>(header.height));
        window.left = random.below(static_cast<uint32_t>(header.width - window.width + 1));
        window.top = random.below(static_cast<uint32_t>(header.height - window.height + 1));
        const Pixels part = decode_jpeg(bytes, window, scale);
        const Rect& p = part.part;
        ASSERT_LE(p.left * scale, window.left);
        ASSERT_GE((p.left + p.width) * scale, window.left + window.width);
        ASSERT_LE(p.top * scale, window.top);
        ASSERT_GE((p.top + p.height) * scale, window.top + window.height);
        for (int64_t y = 0; y < p.height; ++y)
          for (int64_t x = 0; x < p.width * 3; ++x)
            ASSERT_EQ(part.rgb[static_cast<size_t>(y * p.width * 3 + x)],
                      whole.rgb[static_cast<size_t>(((p.top + y) * whole.part.width + p.left) * 3 + x)])
                << name << " 1/" << scale << ", window " << window.width << "x" << window.height << " at "
                << window.left << "," << window.top << ": row " << y << " value " << x;
      }
    }
  }
}

TEST(Jpeg, NamesTheErrorInInvalidFiles) {
  const auto error = [](const Bytes& bytes) { return decode_error([&] { read_jpeg_header(bytes); }); };
  EXPECT_EQ(error({}), "is empty");
  EXPECT_EQ(error({1, 2, 3, 4}), "is not an image");
  EXPECT_THAT(error({0x89, 'P', 'N', 'G', 13, 10}), HasSubstr("is a PNG image"));
  EXPECT_THAT(error({0xff, 0xd8, 0xff}), HasSubstr("not a readable JPEG"));
  Bytes bytes = golden_jpeg("colour");
  EXPECT_THAT(error({bytes.begin(), bytes.begin() + 100}), HasSubstr("not a readable JPEG"));
  const size_t frame = static_cast<size_t>(find_marker(bytes, 0xc0) - bytes.begin());
  bytes[frame + 1] = 0xc3;
  EXPECT_THAT(error(bytes), HasSubstr("SOF")) << "lossless coding is not supported";
  bytes[frame + 1] = 0xc0;
  bytes[frame + 5] = bytes[frame + 6] = 0;
  EXPECT_THAT(error(bytes), HasSubstr("not a readable JPEG")) << "an image without rows";
}

// For truncated and overwritten files, decoding returns pixels marked as corrupt, or throws DecodeError.
TEST(Jpeg, SurvivesCorruption) {
  RandomStream random(2, Purpose::test);
  int damaged = 0;
  for (const std::string name : kImages) {
    const Bytes whole = golden_jpeg(name);
    for (int i = 0; i < 400; ++i) {
      Bytes bytes = whole;
      if (i % 4 == 0) bytes.resize(random.below(static_cast<uint32_t>(bytes.size())));
      else
        for (uint32_t n = 1 + random.below(4); n > 0; --n)
          bytes[random.below(static_cast<uint32_t>(bytes.size()))] = static_cast<uint8_t>(random.below(256));
      try {
        const JpegHeader header = read_jpeg_header(bytes);
        if (header.width * header.height > 1 << 20) continue;
        damaged +=
            decode_jpeg(bytes, {header.width / 3, header.height / 3, 1 + header.width / 4, 1 + header.height / 4},
                        1 << i % 4)
                .damaged;
      } catch (const DecodeError&) {
      }
    }
  }
  EXPECT_GT(damaged, 20);
}

TEST(Jpeg, RefusesWindowsOutsideTheImage) {
  const Bytes bytes = golden_jpeg("grey");
  EXPECT_THAT(error_of([&] { decode_jpeg(bytes, {100, 0, 35, 10}); }), HasSubstr("134x90"));
  EXPECT_THAT(error_of([&] { decode_jpeg(bytes, {0, 0, 0, 10}); }), HasSubstr("window 0x10"));
  EXPECT_THAT(error_of([&] { decode_jpeg(bytes, {0, 0, 8, 8}, 3); }), HasSubstr("scale 1/3"));
}

// A small progressive image whose header claims width x height.
Bytes progressive(int width, int height) {
  Bytes bytes = golden_jpeg("progressive");
  const auto frame = find_marker(bytes, 0xc2);
  frame[5] = static_cast<uint8_t>(height >> 8), frame[6] = static_cast<uint8_t>(height);
  frame[7] = static_cast<uint8_t>(width >> 8), frame[8] = static_cast<uint8_t>(width);
  return bytes;
}

// Current resident memory of this process, in bytes.
int64_t resident() {
  std::ifstream in("/proc/self/statm");
  int64_t all = 0, pages = 0;
  in >> all >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

TEST(Jpeg, StatesTheMemoryForProgressiveFiles) {
  EXPECT_EQ(read_jpeg_header(golden_jpeg("colour")).coefficient_bytes, 0);
  EXPECT_EQ(read_jpeg_header(golden_jpeg("grey")).coefficient_bytes, 0);
  // Color at half resolution in one direction: per block of 8×8 pixels, two blocks of 64 coefficients of 2 bytes.
  const Bytes large = progressive(8000, 8000);
  EXPECT_EQ(read_jpeg_header(large).coefficient_bytes, 1000 * 1000 * 128 * 2);
  const std::string error = decode_error([&] { decode_jpeg(large, {0, 0, 100, 100}, 8, int64_t{150} << 20); });
  EXPECT_EQ(
      error,
      "takes 245 MiB to decode (progressive or multi-scan), more than data.decode_mib=150; raise data.decode_mib, "
      "or save the image as a baseline JPEG");
}

TEST(Jpeg, ReleasesTheMemoryAfterALargeFile) {
  if (std::string(GODWIT_SANITIZE) != "") GTEST_SKIP() << "sanitizers keep freed memory";
  const Bytes small = golden_jpeg("progressive"), large = progressive(8000, 8000);
  decode_jpeg(small, {0, 0, 134, 90});
  const int64_t before = resident();
  EXPECT_TRUE(decode_jpeg(large, {0, 0, 100, 100}, 8).damaged);
  decode_jpeg(small, {0, 0, 134, 90});
  EXPECT_LT(resident() - before, 8 << 20) << "decoding used 244 MiB";
}

}  // namespace jpeg_test
}  // namespace godwit::data
