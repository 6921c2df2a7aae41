#include "data/image/augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace godwit::data {
namespace {

constexpr double kLeastArea = 0.08, kRatio = 4.0 / 3.0;

float gray(const float* p) { return 0.299f * p[0] + 0.587f * p[1] + 0.114f * p[2]; }

// x ← clamp(factor·x + (1 - factor)·towards)
void blend(float& x, float factor, float towards) { x = std::clamp(factor * x + (1 - factor) * towards, 0.f, 255.f); }

float mean_gray(const float* rgb, int64_t pixels) {
  double sum = 0;
  for (int64_t i = 0; i < pixels; ++i) sum += static_cast<double>(gray(rgb + 3 * i));
  return static_cast<float>(sum / static_cast<double>(pixels));
}

}  // namespace

Rect random_resized_crop(int64_t width, int64_t height, RandomStream& random) {
  const double area = static_cast<double>(width) * static_cast<double>(height);
  const auto anywhere = [&](int64_t places) { return int64_t{random.below(static_cast<uint32_t>(places))}; };
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double part = area * (kLeastArea + (1 - kLeastArea) * static_cast<double>(random.uniform()));
    const double ratio = std::exp(std::log(kRatio) * (2 * static_cast<double>(random.uniform()) - 1));
    const int64_t w = std::llrint(std::sqrt(part * ratio)), h = std::llrint(std::sqrt(part / ratio));
    if (w < 1 || w > width || h < 1 || h > height) continue;
    const int64_t top = anywhere(height - h + 1), left = anywhere(width - w + 1);
    return {left, top, w, h};
  }
  int64_t w = width, h = height;
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  if (ratio < 1 / kRatio) h = std::max<int64_t>(1, std::llrint(static_cast<double>(width) * kRatio));
  if (ratio > kRatio) w = std::max<int64_t>(1, std::llrint(static_cast<double>(height) * kRatio));
  return {(width - w) / 2, (height - h) / 2, w, h};
}

Box center_box(int64_t width, int64_t height, int64_t resize, int64_t crop) {
  const int64_t short_side = std::min(width, height), long_side = std::max(width, height);
  const int64_t resized = resize * long_side / short_side;  // the long side, rounded down
  const int64_t across = width <= height ? resize : resized, down = width <= height ? resized : resize;
  const auto corner = [&](int64_t size) { return std::nearbyint(static_cast<double>(size - crop) / 2); };
  const double sx = static_cast<double>(width) / static_cast<double>(across);
  const double sy = static_cast<double>(height) / static_cast<double>(down);
  return {corner(across) * sx, corner(down) * sy, static_cast<double>(crop) * sx, static_cast<double>(crop) * sy};
}

void change_color(float* rgb, int64_t pixels, Color what, float factor) {
  const float whole = what == Color::contrast ? mean_gray(rgb, pixels) : 0;
  for (int64_t i = 0; i < pixels; ++i) {
    float* p = rgb + 3 * i;
    const float towards = what == Color::saturation ? gray(p) : whole;
    for (int c = 0; c < 3; ++c) blend(p[c], factor, towards);
  }
}

void color_jitter(float* rgb, int64_t pixels, double strength, RandomStream& random) {
  const double least = std::max(0.0, 1 - strength), span = 1 + strength - least;
  std::array order = {Color::brightness, Color::contrast, Color::saturation};
  for (uint32_t left = 3; left > 1; --left) std::swap(order[left - 1], order[random.below(left)]);
  for (const Color what : order)
    change_color(rgb, pixels, what, static_cast<float>(least + span * static_cast<double>(random.uniform())));
}

}  // namespace godwit::data
