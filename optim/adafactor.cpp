#include "optim/adafactor.h"

#include <algorithm>
#include <cmath>

#include "engine/elements.h"
#include "engine/parallel.h"
#include "optim/adafactor_kernels.h"

namespace godwit {
namespace {

constexpr double kLeastSize = 1e-3;  // of a parameter, which lr is relative to

bool within(const Slot& slot, const Segment& owned) {
  return slot.offset >= owned.begin && slot.offset + slot.numel <= owned.end;
}

// Σ over i of term(i), in float64: each block of 4096 by itself, then the blocks in order.
template <class F>
double sum_over(int64_t n, const F& term) {
  constexpr int64_t kBlock = adafactor::kBlock;
  std::vector<double> blocks(static_cast<size_t>((n + kBlock - 1) / kBlock));
  parallel_for(std::ssize(blocks), 8, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      double sum = 0;
      for (int64_t i = b * kBlock; i < std::min(n, (b + 1) * kBlock); ++i) sum += term(i);
      blocks[static_cast<size_t>(b)] = sum;
    }
  });
  double sum = 0;
  for (const double block : blocks) sum += block;
  return sum;
}

}  // namespace

Adafactor::Adafactor(const OptimizerConfig& config, const Buckets& buckets, std::unique_ptr<Exchange> exchange)
    : Optimizer(std::move(exchange)), config_(config) {
  for (const Bucket& bucket : buckets) {
    moments_.emplace_back();
    const auto keep = [&](const char* name, const Slot& slot, int64_t n) {
      const Tensor zeros = Tensor::zeros({n}, bucket.param.dtype());
      state_.push_back({name, bucket.begin + slot.offset, zeros, bucket.shards.empty()});
      return zeros;
    };
    for (const Slot& slot : bucket.slots) {
      Moments moments;
      const bool apart = bucket.owned.numel() == 0 || slot.offset >= bucket.owned.end ||
                         slot.offset + slot.numel <= bucket.owned.begin;
      check(within(slot, bucket.owned) || apart || slot.numel == 0, "adafactor: the shards cut parameter '", slot.name,
            "', whose update reads all of it; shard whole parameters (a block size of 0)");
      const Shape& shape = slot.var.shape();
      if (shape.rank() >= 2 && slot.numel > 0) {
        moments.rows = shape[0];
        moments.columns = slot.numel / shape[0];
      }
      if (within(slot, bucket.owned) && slot.numel > 0) {
        if (moments.rows == 0) {
          moments.v = keep("v", slot, slot.numel);
        } else {
          moments.row = keep("v_row", slot, moments.rows);
          moments.column = keep("v_column", slot, moments.columns);
        }
      }
      moments_.back().push_back(moments);
    }
  }
}

void Adafactor::apply(Bucket& bucket, const StepInfo& step) {
  const size_t b = static_cast<size_t>(bucket.index);
  check(b < moments_.size() && moments_[b].size() == bucket.slots.size(), "adafactor: bucket ", bucket.index,
        " is not one it was made for");
  on_device(bucket.param, [&](auto device) {
    dispatch_real(bucket.param.dtype(), "adafactor", [&]<class T>() {
      T *x = elements<T>(device, bucket.param), *g = elements<T>(device, bucket.grad);
      for (size_t s = 0; s < bucket.slots.size(); ++s) {
        const Slot& slot = bucket.slots[s];
        if (slot.numel == 0 || !within(slot, bucket.owned)) continue;
        update(device, slot, moments_[b][s], x + slot.offset, g + slot.offset, step);
      }
    });
  });
}

template <class T>
void Adafactor::update(Cuda device, const Slot& slot, const Moments& moments, T* x, const T* g,
                       const StepInfo& step) const {
  adafactor::Args<T> a{};
  a.x = x, a.g = g;
  a.rows = std::max<int64_t>(moments.rows, 1), a.columns = slot.numel / a.rows;
  a.beta2 = beta2(step), a.eps = config_.eps;
  a.lr = step.lr, a.clip_update = config_.clip_update, a.relative = config_.relative, a.least_size = kLeastSize;
  a.keep = static_cast<T>(1 - step.lr * decay(slot));
  if (moments.rows == 0) adafactor::update(device, a, elements<T>(device, moments.v));
  else adafactor::update(device, a, elements<T>(device, moments.row), elements<T>(device, moments.column));
}

double Adafactor::beta2(const StepInfo& step) const {
  return 1 - std::pow(static_cast<double>(step.step), -config_.decay_exponent);
}

double Adafactor::decay(const Slot& slot) const {
  return slot.decay || config_.decay_norm_and_bias ? config_.weight_decay : 0;
}

template <class T>
void Adafactor::update(Cpu, const Slot& slot, const Moments& moments, T* x, const T* g, const StepInfo& step) const {
  const double beta2 = this->beta2(step);
  const int64_t n = slot.numel, rows = std::max<int64_t>(moments.rows, 1), columns = n / rows;
  const auto squared = [](T value) { return static_cast<double>(value) * static_cast<double>(value); };
  const auto square = [=, eps = config_.eps](int64_t i) { return squared(g[i]) + eps; };
  const auto move = [=](T& mean, double value) {
    mean = static_cast<T>(beta2 * static_cast<double>(mean) + (1 - beta2) * value);
  };
  // u = ĝ·by_row·by_column
  std::vector<T> by_row(static_cast<size_t>(rows), T{1}), by_column(static_cast<size_t>(columns));
  const int64_t row_grain = std::max<int64_t>(1, (1 << 14) / columns);
  const int64_t column_grain = std::max<int64_t>(1, (1 << 14) / rows);
  if (moments.rows == 0) {
    T* v = moments.v.data<T>();
    parallel_for(n, 1 << 14, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        move(v[i], square(i));
        by_column[static_cast<size_t>(i)] = static_cast<T>(1 / std::sqrt(static_cast<double>(v[i])));
      }
    });
  } else {
    T *r = moments.row.data<T>(), *c = moments.column.data<T>();
    parallel_for(rows, row_grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        double sum = 0;
        for (int64_t j = 0; j < columns; ++j) sum += square(i * columns + j);
        move(r[i], sum / static_cast<double>(columns));
      }
    });
    parallel_for(columns, column_grain, [&](int64_t begin, int64_t end) {
      std::vector<double> sums(static_cast<size_t>(end - begin));
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = begin; j < end; ++j) sums[static_cast<size_t>(j - begin)] += square(i * columns + j);
      for (int64_t j = begin; j < end; ++j) {
        move(c[j], sums[static_cast<size_t>(j - begin)] / static_cast<double>(rows));
        by_column[static_cast<size_t>(j)] = static_cast<T>(1 / std::sqrt(static_cast<double>(c[j])));
      }
    });
    const double sum = sum_over(rows, [=](int64_t i) { return static_cast<double>(r[i]); });
    const double mean = sum / static_cast<double>(rows);
    for (int64_t i = 0; i < rows; ++i)
      by_row[static_cast<size_t>(i)] = static_cast<T>(std::sqrt(mean / static_cast<double>(r[i])));
  }
  const auto u = [&](int64_t i) {
    return g[i] * by_row[static_cast<size_t>(i / columns)] * by_column[static_cast<size_t>(i % columns)];
  };
  const double count = static_cast<double>(n);
  const double size_of_u = std::sqrt(sum_over(n, [&](int64_t i) { return squared(u(i)); }) / count);
  double lr = step.lr;
  if (config_.relative) {
    const double size = std::sqrt(sum_over(n, [=](int64_t i) { return squared(x[i]); }) / count);
    lr *= std::max(kLeastSize, size);
  }
  const T keep = static_cast<T>(1 - step.lr * decay(slot));
  const T move_by = static_cast<T>(lr / std::max(1.0, size_of_u / config_.clip_update));
  parallel_for(n, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) x[i] = keep * x[i] - move_by * u(i);
  });
}

std::vector<StatePart> Adafactor::state() const { return state_; }

}  // namespace godwit
