#include "nn/init.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "autograd/leaf.h"
#include "engine/parallel.h"
#include "engine/philox.h"

namespace godwit::nn {
namespace {

uint32_t fnv1a(std::string_view text) {
  uint32_t hash = 0x811C9DC5u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193u;
  return hash;
}

// Draws elements [begin, begin + there.numel()) of a parameter with rows of `row` elements. Each row has its own stream
// and its own copy of `draw`. Values are drawn on the CPU, so that weights on a GPU are identical.
template <class Draw>
void draw_rows(const Tensor& there, int64_t begin, int64_t row, uint64_t seed, uint32_t name, Draw draw) {
  const bool on_cpu = there.device() == kCpu;
  const Tensor part = on_cpu ? there : Tensor(there.shape(), there.dtype(), kCpu);
  const int64_t end = begin + part.numel(), first = begin / row, rows = (end + row - 1) / row - first;
  dispatch_real(part.dtype(), "initialize", [&]<class T>() {
    T* const to = part.data<T>() - begin;
    parallel_for(rows, 1 + 4096 / (row + 1), [=](int64_t from, int64_t until) {
      for (int64_t r = first + from; r < first + until; ++r) {
        RandomStream stream(seed, Purpose::initialize, name, static_cast<uint32_t>(r));
        Draw next = draw;
        const int64_t last = std::min(end, (r + 1) * row);
        for (int64_t i = r * row; i < last; ++i)
          if (const T value = static_cast<T>(next(stream)); i >= begin) to[i] = value;
      }
    });
  });
  if (!on_cpu) there.copy_from(part);
}

// Fills a parameter with draw(stream), and row zero_row with 0; fills a deferred parameter when values are needed.
template <class Draw>
void fill_rows(const Parameter& parameter, uint64_t seed, Draw draw, int64_t zero_row = -1) {
  const Shape& shape = parameter.var.shape();
  if (shape.numel() == 0) return;
  const int64_t row = shape.numel() / shape[0];
  const auto fill = [=, name = fnv1a(parameter.name)](const Tensor& part, int64_t begin) {
    if (part.numel() > 0) draw_rows(part, begin, row, seed, name, draw);
    const int64_t first = std::max(zero_row * row, begin), end = std::min((zero_row + 1) * row, begin + part.numel());
    if (first < end) part.range(first - begin, end - first).zero();
  };
  if (Leaf(parameter.var).is_deferred()) return Leaf(parameter.var).defer(fill);
  const Tensor& value = parameter.var.value();
  fill(value.view({value.numel()}), 0);
}

// Uses both values of a Box–Muller pair, in half the time of RandomStream::normal(). Each row has its own copy.
struct PairOfNormals {
  double deviation, spare = 0;
  bool has_spare = false;

  double operator()(RandomStream& stream) {
    if (std::exchange(has_spare, !has_spare)) return spare;
    const double u = (stream.next() + 1.0) * 0x1p-32, angle = 2 * std::numbers::pi * (stream.next() * 0x1p-32);
    const double radius = deviation * std::sqrt(-2 * std::log(u));
    spare = radius * std::sin(angle);
    return radius * std::cos(angle);
  }
};

}  // namespace

void fill_normal(const Parameter& parameter, uint64_t seed, double deviation, int64_t zero_row) {
  fill_rows(parameter, seed, PairOfNormals{deviation}, zero_row);
}

void fill_uniform(const Parameter& parameter, uint64_t seed, double bound) {
  fill_rows(parameter, seed, [bound](RandomStream& stream) {
    return bound * (2.0 * static_cast<double>(stream.uniform()) - 1.0);
  });
}

void initialize(const Module& module, uint64_t seed) {
  std::unordered_map<std::string, double> bias_bound;  // bounds of the linear layers, by name
  const std::vector<Parameter> parameters = module.parameters();
  const std::string weight = "weight";
  for (const Parameter& p : parameters) {
    const Shape& shape = p.var.shape();
    if (shape.rank() == 4) {
      const double deviation = std::sqrt(2.0 / static_cast<double>(shape[0] * shape[1] * shape[2]));
      fill_rows(p, seed, [deviation](RandomStream& stream) { return deviation * stream.normal(); });
    } else if (shape.rank() == 2) {
      const double bound = 1 / std::sqrt(static_cast<double>(shape[1]));
      fill_uniform(p, seed, bound);
      if (p.name.ends_with(weight)) bias_bound[p.name.substr(0, p.name.size() - weight.size()) + "bias"] = bound;
    }
  }
  for (const Parameter& p : parameters)
    if (const auto found = bias_bound.find(p.name); found != bias_bound.end())
      fill_uniform(p, seed, found->second);
}

void initialize_normal(const Module& module, uint64_t seed, double deviation) {
  for (const Parameter& p : module.parameters())
    if (p.var.shape().rank() > 1) fill_normal(p, seed, deviation);
}

void initialize_uniform(const Module& module, uint64_t seed, const std::function<double(const Parameter&)>& bound) {
  for (const Parameter& p : module.parameters())
    if (const double limit = bound(p); limit > 0) fill_uniform(p, seed, limit);
}

}  // namespace godwit::nn
