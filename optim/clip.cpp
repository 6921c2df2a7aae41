#include "optim/clip.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "comm/host_tensor.h"
#include "engine/host_reads.h"
#include "engine/parallel.h"

namespace godwit {
namespace {

constexpr int64_t kBlock = 4096;  // values whose squares are summed by one task

// Uses eight running sums for every vector width, so that the result does not depend on the machine.
template <class T>
double block_squares(const T* g, int64_t n) {
  double sums[8] = {};
  const int64_t whole = n / 8 * 8;
  for (int64_t i = 0; i < whole; i += 8)
    for (int64_t lane = 0; lane < 8; ++lane) {
      const double value = g[i + lane];
      sums[lane] += value * value;
    }
  for (int64_t i = whole; i < n; ++i) sums[i - whole] += static_cast<double>(g[i]) * static_cast<double>(g[i]);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

double squares_of(const Tensor& gradient) {
  const int64_t n = gradient.numel(), blocks = (n + kBlock - 1) / kBlock;
  std::vector<double> partial(static_cast<size_t>(blocks));
  dispatch_real(gradient.dtype(), "clip", [&]<class T>() {
    const T* g = gradient.data<T>();
    parallel_for(blocks, 8, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b)
        partial[static_cast<size_t>(b)] = block_squares(g + b * kBlock, std::min(kBlock, n - b * kBlock));
    });
  });
  double sum = 0;
  for (const double part : partial) sum += part;
  return sum;
}

// Σ of the first elements of rows.
double sum_of(const Tensor& rows) {
  double sum = 0;
  for (int64_t i = 0; i < rows.numel(); i += detail::row_width(rows)) sum += rows.data<double>()[i];
  return sum;
}

// Index of the first non-finite value, or the number of values if all values are finite but their sum overflows.
int64_t first_not_finite_in(const Tensor& squares) {
  const auto all = squares.span<double>();
  return std::find_if(all.begin(), all.end(), [](double value) { return !std::isfinite(value); }) - all.begin();
}

}  // namespace

NormClip::NormClip(const Buckets& buckets, double limit) : limit_(limit) {
  check(std::isfinite(limit) && limit > 0, "clip: the norm must be positive and finite, not ", limit);
  for (const Bucket& bucket : buckets) {
    first_.push_back(std::ssize(names_));
    for (const Slot& slot : bucket.slots) names_.push_back(slot.name);
  }
  squares_ = Tensor({std::ssize(names_)}, DType::f64);
}

void NormClip::measure(const Bucket& bucket, const Segment& part) {
  std::vector<Segment> ranges;
  for (const Slot& slot : bucket.slots) {
    const int64_t begin = std::max(slot.offset, part.begin), end = std::min(slot.offset + slot.numel, part.end);
    ranges.push_back({begin, std::max(begin, end)});
  }
  const Tensor own = squares_.range(first_.at(static_cast<size_t>(bucket.index)), std::ssize(ranges));
  own.copy_from(
      on_device(bucket.grad, [&](auto device) { return detail::squares_of_ranges(device, bucket.grad, ranges); }));
}

Tensor NormClip::factor(int64_t step) {
  const Tensor result =
      on_device(squares_, [&](auto device) { return detail::clip_factor(device, squares_, limit_, 1); });
  read_on_host(squares_, [this, step](const Tensor& squares) {
    norm_ = std::sqrt(sum_of(squares));
    if (!std::isfinite(norm_)) fail_not_finite(step, "", first_not_finite_in(squares));
  });
  return result;
}

Tensor NormClip::factor(int64_t step, Group& world, Reduce op) {
  const Tensor all({world.size(), 2}, DType::f64, squares_.device());
  const double ranks = op == Reduce::mean ? world.size() : 1;
  const Tensor result = on_device(squares_, [&](auto device) {
    world.all_gather(detail::norm_message(device, squares_), all, "clip/all_gather");
    return detail::clip_factor(device, all, limit_, ranks);
  });
  read_on_host(all, [=, this](const Tensor& messages) {
    norm_ = std::sqrt(sum_of(messages) / ranks);
    if (std::isfinite(norm_)) return;
    int64_t bad = 0;  // the first rank with the lowest slot
    const auto slot_of = [&](int64_t rank) { return static_cast<int64_t>(messages.item(2 * rank + 1)); };
    for (int64_t rank = 1; rank < messages.dim(0); ++rank)
      if (slot_of(rank) < slot_of(bad)) bad = rank;
    const bool differ = op == Reduce::mean;  // with Reduce::sum, ranks measured disjoint parts of one gradient
    fail_not_finite(step, differ ? detail::concat(" on rank ", bad) : "", slot_of(bad));
  });
  return result;
}

void NormClip::fail_not_finite(int64_t step, const std::string& where, int64_t slot) const {
  const size_t s = static_cast<size_t>(slot);
  fail("clip: step ", step, ": the norm of the gradients is ", norm_, ": ",
       s < names_.size() ? "the norm of '" + names_[s] + "'" : "the sum of all squares", " is not finite", where,
       "; lower the learning rate or use a warm-up");
}

void scale_gradient(Bucket& bucket, const Tensor& factor) {
  const Tensor g = bucket.grad.range(bucket.owned.begin, bucket.owned.numel());
  on_device(g, [&](auto device) { detail::scale(device, g, factor); });
}

double sum_of_squares(const Tensor& x) {
  return on_device(x, [&](auto device) { return detail::sums_of_squares(device, x, {{0, x.numel()}})[0]; });
}

void read_sum_of_squares(const Tensor& x, std::function<void(double)> f) {
  const Tensor sum = on_device(x, [&](auto device) { return detail::squares_of_ranges(device, x, {{0, x.numel()}}); });
  read_on_host(sum, [f = std::move(f)](const Tensor& values) { f(values.item()); });
}

namespace detail {

Tensor squares_of_ranges(Cpu, const Tensor& x, const std::vector<Segment>& ranges) {
  const Tensor sums({std::ssize(ranges)}, DType::f64, kCpu);
  for (size_t i = 0; i < ranges.size(); ++i)
    sums.data<double>()[i] = squares_of(x.range(ranges[i].begin, ranges[i].numel()));
  return sums;
}

Tensor norm_message(Cpu, const Tensor& squares) {
  return cpu_tensor<double>({sum_of(squares), static_cast<double>(first_not_finite_in(squares))});
}

Tensor clip_factor(Cpu, const Tensor& squares, double limit, double ranks) {
  return cpu_tensor<double>({std::min(1.0, limit / (std::sqrt(sum_of(squares) / ranks) + 1e-6))});
}

void scale(Cpu, const Tensor& x, const Tensor& factor) {
  if (!(factor.item() < 1)) return;
  dispatch_real(x.dtype(), "clip", [&]<class T>() {
    T* values = x.data<T>();
    const T f = static_cast<T>(factor.item());
    parallel_for(x.numel(), 1 << 15, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[i] *= f;
    });
  });
}

}  // namespace detail

}  // namespace godwit
