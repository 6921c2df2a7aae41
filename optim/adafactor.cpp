#include "optim/adafactor.h"

#include <algorithm>
#include <cmath>

#include "engine/column_chunk.h"
#include "engine/data_ptr.h"
#include "engine/row_sum.h"
#include "optim/kernels/adafactor_kernels.h"

namespace godwit {
namespace {

constexpr double kLeastSize = 1e-3;  // minimum RMS(x) in a relative learning rate

bool within(const Slot& slot, const Segment& owned) {
  return slot.offset >= owned.begin && slot.offset + slot.numel <= owned.end;
}

// Σ term(i) for i in [0, n), in the order of adafactor_kernels.h.
template <class Term>
GODWIT_INLINE inline double lane_sum(int64_t n, const Term& term) {
  return godwit::lane_sum<adafactor::kLanes>(0, n, term);
}

double lane_sum(const std::vector<double>& values) {
  return lane_sum(std::ssize(values), [&](int64_t i) GODWIT_INLINE { return values[static_cast<size_t>(i)]; });
}

constexpr int64_t kGrain = 1 << 14;  // minimum number of values per thread

int64_t row_grain(int64_t columns) { return std::max<int64_t>(1, kGrain / columns); }

// Row sums: Σ_j term(i, j) for each row i.
template <class Term>
std::vector<double> row_sums(int64_t rows, int64_t columns, const Term& term) {
  std::vector<double> sums(static_cast<size_t>(rows));
  vector_for(rows, row_grain(columns), [&](int64_t begin, int64_t end) GODWIT_INLINE {
    for (int64_t i = begin; i < end; ++i)
      sums[static_cast<size_t>(i)] = lane_sum(columns, [&](int64_t j) GODWIT_INLINE { return term(i, j); });
  });
  return sums;
}

// Column sums: Σ_i term(i, j) for each column j.
template <class Term>
std::vector<double> column_sums(int64_t rows, int64_t columns, const Term& term) {
  const int64_t chunk = column_chunk(rows), chunks = (rows + chunk - 1) / chunk;
  std::vector<double> partial(static_cast<size_t>(chunks * columns)), sums(static_cast<size_t>(columns));
  vector_for(chunks, row_grain(chunk * columns), [&](int64_t begin, int64_t end) GODWIT_INLINE {
    for (int64_t i = begin * chunk; i < std::min(rows, end * chunk); ++i) {
      double* __restrict of_chunk = partial.data() + i / chunk * columns;
      for (int64_t j = 0; j < columns; ++j) of_chunk[j] += term(i, j);
    }
  });
  for (int64_t k = 0; k < chunks; ++k)
    for (size_t j = 0; j < sums.size(); ++j) sums[j] += partial[static_cast<size_t>(k) * sums.size() + j];
  return sums;
}

}  // namespace

void Adafactor::Options::describe(OptionList& list) {
  describe_common(*this, list);
  list.add("eps", eps, "added to squared gradients", kPositiveFloat);
  list.add("decay_exponent", decay_exponent, "c in beta2 = 1 - t^-c, the decay rate at step t", kAboveZeroToOne);
  list.add("clip_update", clip_update, "largest root mean square of a parameter's update, before lr", kPositive);
  list.add("relative", relative, "multiply lr by the root mean square of each parameter");
}

Adafactor::Adafactor(const Options& options, const Buckets& buckets, std::unique_ptr<Exchange> exchange)
    : Optimizer(std::move(exchange)), options_(options) {
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
            "', but an update needs the whole parameter; shard whole parameters (a block size of 0)");
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
        " was not passed to the constructor; use the same buckets");
  on_device(bucket.param, [&](auto device) {
    dispatch_real(bucket.param.dtype(), "adafactor", [&]<class T>() {
      T *x = data_ptr<T>(device, bucket.param), *g = data_ptr<T>(device, bucket.grad);
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
  a.beta2 = beta2(step), a.eps = options_.eps;
  a.lr = step.lr, a.clip_update = options_.clip_update, a.relative = options_.relative, a.least_size = kLeastSize;
  a.keep = static_cast<T>(1 - step.lr * decay(slot));
  if (moments.rows == 0) adafactor::update(device, a, data_ptr<T>(device, moments.v));
  else adafactor::update(device, a, data_ptr<T>(device, moments.row), data_ptr<T>(device, moments.column));
}

double Adafactor::beta2(const StepInfo& step) const {
  return 1 - std::pow(static_cast<double>(step.step), -options_.decay_exponent);
}

double Adafactor::decay(const Slot& slot) const {
  return slot.decay || options_.decay_norm_and_bias ? options_.weight_decay : 0;
}

template <class T>
void Adafactor::update(Cpu, const Slot& slot, const Moments& moments, T* x, const T* g, const StepInfo& step) const {
  const double beta2 = this->beta2(step), eps = options_.eps;
  const int64_t rows = std::max<int64_t>(moments.rows, 1), columns = slot.numel / rows;
  const auto squared = [](T value) GODWIT_INLINE { return static_cast<double>(value) * static_cast<double>(value); };
  const auto square = [=](int64_t i, int64_t j) GODWIT_INLINE { return squared(g[i * columns + j]) + eps; };
  // Updates the moving averages `means` from sums of `count` squares each.
  const auto move = [=](T* means, const std::vector<double>& sums, int64_t count) {
    for (size_t i = 0; i < sums.size(); ++i) {
      const double value = sums[i] / static_cast<double>(count);
      means[i] = static_cast<T>(beta2 * static_cast<double>(means[i]) + (1 - beta2) * value);
    }
  };
  // u = ĝ·by_row·by_column
  std::vector<T> by_row(static_cast<size_t>(rows), T{1}), by_column(static_cast<size_t>(columns));
  T* c = nullptr;
  if (moments.rows == 0) {
    c = moments.v.data<T>();
    move(c, column_sums(1, columns, square), 1);
  } else {
    T* r = moments.row.data<T>();
    c = moments.column.data<T>();
    move(r, row_sums(rows, columns, square), columns);
    move(c, column_sums(rows, columns, square), rows);
    const double mean =
        lane_sum(rows, [=](int64_t i) GODWIT_INLINE { return static_cast<double>(r[i]); }) / static_cast<double>(rows);
    for (size_t i = 0; i < by_row.size(); ++i)
      by_row[i] = static_cast<T>(std::sqrt(mean / static_cast<double>(r[i])));
  }
  for (size_t j = 0; j < by_column.size(); ++j)
    by_column[j] = static_cast<T>(1 / std::sqrt(static_cast<double>(c[j])));
  const T *of_row = by_row.data(), *of_column = by_column.data();
  const auto u = [=](int64_t i, int64_t j) GODWIT_INLINE { return g[i * columns + j] * of_row[i] * of_column[j]; };
  const auto root_mean_square = [=](const auto& value) {
    const auto term = [=](int64_t i, int64_t j) GODWIT_INLINE { return squared(value(i, j)); };
    return std::sqrt(lane_sum(row_sums(rows, columns, term)) / static_cast<double>(slot.numel));
  };
  double lr = step.lr;
  if (options_.relative)
    lr *=
        std::max(kLeastSize, root_mean_square([=](int64_t i, int64_t j) GODWIT_INLINE { return x[i * columns + j]; }));
  const T keep = static_cast<T>(1 - step.lr * decay(slot));
  const T move_by = static_cast<T>(lr / std::max(1.0, root_mean_square(u) / options_.clip_update));
  vector_for(rows, row_grain(columns), [=](int64_t begin, int64_t end) GODWIT_INLINE {
    for (int64_t i = begin; i < end; ++i) {
      T* __restrict row = x + i * columns;
      for (int64_t j = 0; j < columns; ++j) row[j] = keep * row[j] - move_by * u(i, j);
    }
  });
}

std::vector<StateTensor> Adafactor::state() const { return state_; }

const OptimizerMethod& adafactor_method() {
  static const OptimizerMethod method{
      .name = "adafactor",
      .help = "second moments as one mean per row and one per column of each matrix; relative learning rate",
      .paper =
          "Shazeer and Stern, Adafactor: Adaptive Learning Rates with Sublinear Memory Cost, arXiv:1804.04235, 2018",
      .bytes = kExchangeBytes,
      .defaults = Adafactor::Options{},
      .needs_whole_parameters = true,
      .make = make_with_exchange<Adafactor>,
  };
  return method;
}

}  // namespace godwit
