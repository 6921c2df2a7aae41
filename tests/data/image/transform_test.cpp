#include "data/image/transform.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/data/files.h"

namespace godwit::data {
namespace transform_test {

using testing::HasSubstr;

Bytes image_of(int64_t size) {
  Bytes image(static_cast<size_t>(size));
  for (size_t i = 0; i < image.size(); ++i) image[i] = static_cast<uint8_t>(1 + i * 37 % 255);
  return image;
}

TEST(Transform, NormalizesPerChannel) {
  const Transform transform({1, 2, 3}, {.mean = {0.5f, 0.25f, 0}, .std = {0.5f, 0.25f, 2}});
  const Bytes image{0, 255, 51, 255, 0, 102};
  std::vector<float> out(6);
  transform.normalize(image.data(), out.data());
  EXPECT_THAT(out, testing::Pointwise(testing::FloatEq(), {-1.f, 3.f, 0.1f, 1.f, -1.f, 0.2f}));
}

// Every augmented image is the zero-padded original, shifted by at most `pad` and optionally mirrored. All combinations
// must occur. The pixels are distinct enough that only one combination fits.
TEST(Transform, AugmentsWithEveryCropAndFlip) {
  const int64_t h = 5, w = 4;
  for (const int64_t c : {1, 3}) {
    const int64_t pad = 2;
    const Transform transform({h, w, c}, {.pad = pad, .flip = true, .seed = 11});
    const Bytes image = image_of(h * w * c);
    std::vector<float> out(image.size());
    std::set<std::tuple<int64_t, int64_t, bool>> seen;
    for (int64_t sample = 0; sample < 1000; ++sample) {
      transform.augment(image.data(), 1, sample, out.data());
      int matches = 0;
      for (int64_t down = -pad; down <= pad; ++down)
        for (int64_t right = -pad; right <= pad; ++right)
          for (const bool flip : {false, true}) {
            bool same = true;
            for (int64_t y = 0; y < h; ++y)
              for (int64_t x = 0; x < w; ++x)
                for (int64_t k = 0; k < c; ++k) {
                  const int64_t sy = y + down, sx = (flip ? w - 1 - x : x) + right;
                  const bool inside = sy >= 0 && sy < h && sx >= 0 && sx < w;
                  const int byte = inside ? image[static_cast<size_t>((sy * w + sx) * c + k)] : 0;
                  same &= out[static_cast<size_t>((y * w + x) * c + k)] == static_cast<float>(byte) / 255.f;
                }
            if (!same) continue;
            ++matches;
            seen.insert({down, right, flip});
          }
      ASSERT_EQ(matches, 1) << "sample " << sample;
    }
    EXPECT_EQ(seen.size(), 50u);
  }
}

TEST(Transform, PadsWithTheNormalizedZeroPixel) {
  const Transform transform({2, 2, 1}, {.mean = {0.5f}, .std = {0.25f}, .pad = 9, .seed = 1});
  const Bytes image(4, 255);
  std::vector<float> out(4);
  bool padded = false;
  for (int64_t sample = 0; sample < 20; ++sample) {
    transform.augment(image.data(), 0, sample, out.data());
    for (float x : out) {
      EXPECT_TRUE(x == -2.f || x == 2.f) << x;
      padded |= x == -2.f;
    }
  }
  EXPECT_TRUE(padded);
}

TEST(Transform, AugmentationDependsOnlyOnSeedEpochAndSample) {
  const Bytes image = image_of(28 * 28);
  const auto run = [&](uint64_t seed, int64_t epoch, int64_t sample) {
    const Transform transform({28, 28, 1}, {.pad = 4, .flip = true, .seed = seed});
    std::vector<float> out(image.size());
    transform.augment(image.data(), epoch, sample, out.data());
    return out;
  };
  EXPECT_EQ(run(1, 2, 3), run(1, 2, 3));
  EXPECT_NE(run(1, 2, 3), run(2, 2, 3));
  EXPECT_NE(run(1, 2, 3), run(1, 3, 3));
  EXPECT_NE(run(1, 2, 3), run(1, 2, 4));
  const Transform plain({28, 28, 1}, {});
  std::vector<float> a(image.size()), b(image.size());
  plain.augment(image.data(), 1, 2, a.data());
  plain.normalize(image.data(), b.data());
  EXPECT_EQ(a, b) << "without pad and flip, augmentation must not change the image";
}

TEST(Transform, RefusesInvalidNormalization) {
  const auto error = [](Shape shape, TransformOptions options) { return error_of([&] { Transform(shape, options); }); };
  EXPECT_THAT(error({2, 2, 3}, {.mean = {0}, .std = {1}}), HasSubstr("3 channels"));
  EXPECT_THAT(error({2, 2, 1}, {.mean = {0}}), HasSubstr("0 standard deviations"));
  EXPECT_THAT(error({2, 2, 1}, {.mean = {0}, .std = {0}}), HasSubstr("positive"));
  EXPECT_THAT(error({2, 2, 1}, {.mean = {NAN}, .std = {1}}), HasSubstr("finite"));
  EXPECT_THAT(error({2, 2, 1}, {.pad = -1}), HasSubstr("pad -1"));
  EXPECT_THAT(error({2, 2}, {}), HasSubstr("[2, 2]"));
}

}  // namespace transform_test
}  // namespace godwit::data
