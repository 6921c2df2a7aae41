#include "data/image/resample.h"

#include <algorithm>
#include <cmath>

namespace godwit::data {
namespace {

// Each output position is a weighted sum of the inputs [first, first + count); each row of `weight` belongs to one
// output.
struct Taps {
  std::vector<int64_t> first, count;
  std::vector<float> weight;  // [positions, most]
  int64_t most = 0;

  const float* weights(int64_t i) const { return weight.data() + i * most; }
};

// Resamples [start, start + length) to `to` positions, using inputs in [begin, end).
Taps make_taps(double start, double length, int64_t to, int64_t begin, int64_t end) {
  const double step = length / static_cast<double>(to), support = std::max(step, 1.0);
  Taps taps;
  taps.most = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  taps.first.resize(static_cast<size_t>(to));
  taps.count.resize(static_cast<size_t>(to));
  taps.weight.resize(static_cast<size_t>(to * taps.most));
  for (int64_t i = 0; i < to; ++i) {
    const double center = start + (static_cast<double>(i) + 0.5) * step;
    const auto bound = [&](double x) { return std::clamp(static_cast<int64_t>(std::floor(x + 0.5)), begin, end); };
    const int64_t first = std::min(bound(center - support), end - 1);
    const int64_t last = std::min(std::max(bound(center + support), first + 1), first + taps.most);
    float* weight = taps.weight.data() + i * taps.most;
    double sum = 0;
    for (int64_t k = first; k < last; ++k) {
      const double w = std::max(0.0, 1 - std::abs((static_cast<double>(k) + 0.5 - center) / support));
      weight[k - first] = static_cast<float>(w);
      sum += w;
    }
    if (sum > 0)
      for (int64_t k = first; k < last; ++k) weight[k - first] = static_cast<float>(weight[k - first] / sum);
    else weight[0] = 1;  // the box is outside the pixels: use the nearest one
    taps.first[static_cast<size_t>(i)] = first - begin;
    taps.count[static_cast<size_t>(i)] = last - first;
  }
  return taps;
}

Taps taps_of(double start, double length, int64_t to, int64_t begin, int64_t count, int scale) {
  return make_taps(start / scale, length / scale, to, begin, begin + count);
}

}  // namespace

void resample(const Pixels& from, const Box& box, bool flip, int64_t height, int64_t width, float* to) {
  const Rect& part = from.part;
  const Taps down = taps_of(box.top, box.height, height, part.top, part.height, from.scale);
  const Taps along = taps_of(box.left, box.width, width, part.left, part.width, from.scale);
  const int64_t stride = part.width * 3;
  std::vector<float> row(static_cast<size_t>(stride));
  for (int64_t y = 0; y < height; ++y, to += width * 3) {
    const float* weight = down.weights(y);
    std::fill(row.begin(), row.end(), 0.f);
    for (int64_t k = 0; k < down.count[static_cast<size_t>(y)]; ++k) {
      const uint8_t* source = from.rgb.data() + (down.first[static_cast<size_t>(y)] + k) * stride;
      const float w = weight[k];
      for (int64_t i = 0; i < stride; ++i) row[static_cast<size_t>(i)] += w * static_cast<float>(source[i]);
    }
    for (int64_t x = 0; x < width; ++x) {
      const float *source = row.data() + along.first[static_cast<size_t>(x)] * 3, *w = along.weights(x);
      float r = 0, g = 0, b = 0;
      for (int64_t k = 0; k < along.count[static_cast<size_t>(x)]; ++k, source += 3) {
        r += w[k] * source[0];
        g += w[k] * source[1];
        b += w[k] * source[2];
      }
      float* pixel = to + (flip ? width - 1 - x : x) * 3;
      pixel[0] = r;
      pixel[1] = g;
      pixel[2] = b;
    }
  }
}

Rect resample_window(const Box& box, int64_t width, int64_t height, int64_t to_height, int64_t to_width) {
  const auto span = [](double start, double length, int64_t to, int64_t size) {
    const double support = std::max(length / static_cast<double>(to), 1.0);
    const int64_t begin = std::clamp<int64_t>(static_cast<int64_t>(std::floor(start - support)), 0, size - 1);
    const int64_t end = std::clamp<int64_t>(static_cast<int64_t>(std::ceil(start + length + support)), begin + 1, size);
    return std::pair(begin, end - begin);
  };
  const auto [left, columns] = span(box.left, box.width, to_width, width);
  const auto [top, rows] = span(box.top, box.height, to_height, height);
  return {left, top, columns, rows};
}

}  // namespace godwit::data
