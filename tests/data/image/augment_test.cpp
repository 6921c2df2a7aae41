#include "data/image/augment.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/data/golden.h"

namespace godwit::data {
namespace augment_test {

struct Difference {
  double most = 0, mean = 0;
};

Difference difference(const std::vector<float>& values, const nlohmann::json& expected) {
  Difference d;
  EXPECT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const double x = std::abs(static_cast<double>(values[i]) - expected[i].get<double>());
    d.most = std::max(d.most, x);
    d.mean += x / static_cast<double>(values.size());
  }
  return d;
}

std::vector<float> center(const std::string& name, int64_t resize, int64_t crop, int scale = 1) {
  const Bytes bytes = golden_jpeg(name);
  const JpegHeader header = read_jpeg_header(bytes);
  const Box box = center_box(header.width, header.height, resize, crop);
  const Rect window = resample_window(box, header.width, header.height, crop, crop);
  std::vector<float> out(static_cast<size_t>(crop * crop * 3));
  resample(decode_jpeg(bytes, window, scale), box, false, crop, crop, out.data());
  return out;
}

std::vector<float> part(const std::string& name, const Rect& r, int64_t size, bool flip = false) {
  std::vector<float> out(static_cast<size_t>(size * size * 3));
  const Box box{static_cast<double>(r.left), static_cast<double>(r.top), static_cast<double>(r.width),
                static_cast<double>(r.height)};
  resample(decode_jpeg(golden_jpeg(name), r), box, flip, size, size, out.data());
  return out;
}

// torchvision's resize of a PIL image uses 22-bit weights and rounds to bytes after each of its two passes. Godwit does
// not round. Values differ by up to 1, on average by about 1/4.
TEST(Resample, MatchesTorchvision) {
  for (const std::string name : {"colour", "progressive", "grey", "cmyk"}) {
    const double extra = name == "cmyk" ? 0.6 : 0;  // see Jpeg.MatchesPillow
    const auto close = [&](const std::vector<float>& values, const char* key) {
      const Difference d = difference(values, golden()[name][key]);
      EXPECT_LT(d.most, 1.01 + extra) << name << ' ' << key;
      EXPECT_LT(d.mean, 0.3 + extra) << name << ' ' << key;
    };
    close(center(name, 36, 32), "centre");
    const std::vector<float> large = center(name, 120, 105);
    close({large.begin() + 50 * 105 * 3, large.begin() + 51 * 105 * 3}, "enlarged");
    close(part(name, {21, 13, 66, 57}, 24), "part");
    close(part(name, {30, 40, 12, 9}, 24), "part_enlarged");
  }
}

// Decoding at reduced size averages blocks of pixels, while resizing uses triangular weights. Edges of 180 levels
// differ most. Measured mean differences: 0.7, 1.5 and 3.3 levels; maxima: 4, 14 and 29.
TEST(Resample, ReducedDecodingIsCloseToExact) {
  const Difference exact = difference(center("large", 36, 32), golden()["large"]["centre"]);
  EXPECT_LT(exact.most, 1.01);
  for (const int scale : {2, 4, 8}) {
    const Difference d = difference(center("large", 36, 32, scale), golden()["large"]["centre"]);
    EXPECT_LT(d.mean, 0.5 * scale) << scale;
    EXPECT_LT(d.most, 5 * scale) << scale;
  }
}

TEST(Resample, KeepsPixelsAtTheSameSizeAndMirrors) {
  const Rect rect{5, 7, 40, 40};
  const Pixels pixels = decode_jpeg(golden_jpeg("colour"), rect);
  const std::vector<float> same = part("colour", rect, 40), flipped = part("colour", rect, 40, true);
  for (size_t y = 0; y < 40; ++y)
    for (size_t x = 0; x < 40; ++x)
      for (size_t c = 0; c < 3; ++c) {
        EXPECT_EQ(same[(y * 40 + x) * 3 + c], static_cast<float>(pixels.rgb[(y * 40 + x) * 3 + c]));
        EXPECT_EQ(flipped[(y * 40 + x) * 3 + c], same[(y * 40 + 39 - x) * 3 + c]);
      }
}

// A constant image stays constant for all sizes, also close to the edges.
TEST(Resample, ConstantsStayConstant) {
  for (const int64_t from : {1, 2, 7, 64})
    for (const int64_t to : {1, 3, 8, 100}) {
      const Pixels pixels{1, {0, 0, from, from}, std::vector<uint8_t>(static_cast<size_t>(from * from * 3), 200)};
      std::vector<float> out(static_cast<size_t>(to * to * 3));
      const auto side = static_cast<double>(from);
      resample(pixels, {0, 0, side, side}, false, to, to, out.data());
      for (float x : out)
        EXPECT_NEAR(x, 200, 1e-3) << from << " to " << to;  // weights sum to 1 within float32 rounding
    }
}

// Compares mean and standard deviation of 20,000 random crops with torchvision's. Tolerance: five standard errors of
// both.
TEST(Crop, HasTheDistributionOfTorchvision) {
  constexpr int kDraws = 20000;
  for (const auto& crops : golden()["crops"]) {
    const int64_t width = crops["width"], height = crops["height"];
    double sum[4] = {}, squares[4] = {};
    for (uint32_t i = 0; i < kDraws; ++i) {
      RandomStream random(7, Purpose::augment, 3, i);
      const Rect r = random_resized_crop(width, height, random);
      ASSERT_TRUE(r.left >= 0 && r.top >= 0 && r.width >= 1 && r.height >= 1 && r.left + r.width <= width &&
                  r.top + r.height <= height);
      const int64_t values[] = {r.left, r.top, r.width, r.height};
      for (int k = 0; k < 4; ++k) {
        sum[k] += static_cast<double>(values[k]);
        squares[k] += static_cast<double>(values[k] * values[k]);
      }
    }
    for (size_t k = 0; k < 4; ++k) {
      const double mean = sum[k] / kDraws, std = std::sqrt(std::max(0.0, squares[k] / kDraws - mean * mean));
      const double expected = crops["std"][k], error = 5 * std::sqrt(2.0 / kDraws) * expected;
      EXPECT_NEAR(mean, crops["mean"][k], error + 1e-9) << width << "x" << height << " value " << k;
      EXPECT_NEAR(std, expected, error + 1e-9) << width << "x" << height << " value " << k;
    }
  }
}

TEST(Crop, FallsBackToTheCenter) {
  RandomStream random(1, Purpose::augment);
  for (int i = 0; i < 20; ++i) {
    const Rect wide = random_resized_crop(3000, 1, random), tall = random_resized_crop(1, 3000, random);
    EXPECT_EQ(wide.height, 1);
    EXPECT_EQ(tall.width, 1);
    const Rect single = random_resized_crop(1, 1, random);
    EXPECT_EQ(single.width, 1);
  }
}

// PIL rounds each value, and the mean gray, to integers.
TEST(Color, MatchesTorchvision) {
  const nlohmann::json& jitter = golden()["jitter"];
  const auto image = jitter["image"].get<std::vector<float>>();
  const auto changed = [&](Color what, float factor) {
    std::vector<float> values = image;
    change_color(values.data(), static_cast<int64_t>(values.size() / 3), what, factor);
    return values;
  };
  EXPECT_LT(difference(changed(Color::brightness, 1.3f), jitter["brightness"]).most, 1.01);
  EXPECT_LT(difference(changed(Color::contrast, 0.6f), jitter["contrast"]).most, 1.3);
  EXPECT_LT(difference(changed(Color::saturation, 1.4f), jitter["saturation"]).most, 1.5);
  EXPECT_EQ(changed(Color::contrast, 1), image);
}

TEST(Color, JitterStaysInRangeAndVaries) {
  std::set<float> seen;
  for (uint32_t i = 0; i < 50; ++i) {
    std::vector<float> values = {10, 200, 90, 250, 0, 30};
    RandomStream random(1, Purpose::augment, 0, i);
    color_jitter(values.data(), 2, 0.4, random);
    for (float x : values) EXPECT_TRUE(x >= 0 && x <= 255);
    seen.insert(values[1]);
  }
  EXPECT_GT(seen.size(), 40u);
}

}  // namespace augment_test
}  // namespace godwit::data
