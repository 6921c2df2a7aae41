#include "optim/adafactor.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "engine/column_chunk.h"
#include "engine/data_ptr.h"
#include "engine/row_sum.h"

namespace godwit {
namespace {

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

template <class T>
void update(const adafactor::Matrix& m, const adafactor::Args<T>& a) {
  const int64_t rows = m.rows, columns = m.columns;
  const double eps = a.eps;
  T *x = a.x + m.element, *r = a.row + m.row, *c = a.column + m.column;
  const T* g = a.g + m.element;
  const auto squared = [](T value) GODWIT_INLINE { return static_cast<double>(value) * static_cast<double>(value); };
  const auto square = [=](int64_t i, int64_t j) GODWIT_INLINE { return squared(g[i * columns + j]) + eps; };
  // Updates the moving averages `means` from sums of `count` squares each.
  const auto move = [&a](T* means, const std::vector<double>& sums, int64_t count) {
    for (size_t i = 0; i < sums.size(); ++i) {
      const double value = sums[i] / static_cast<double>(count);
      means[i] = static_cast<T>(a.beta2 * static_cast<double>(means[i]) + (1 - a.beta2) * value);
    }
  };
  // u = ĝ·by_row·by_column
  std::vector<T> by_row(static_cast<size_t>(rows), T{1}), by_column(static_cast<size_t>(columns));
  if (!m.vector) {
    move(r, row_sums(rows, columns, square), columns);
    const double mean =
        lane_sum(rows, [=](int64_t i) GODWIT_INLINE { return static_cast<double>(r[i]); }) / static_cast<double>(rows);
    for (size_t i = 0; i < by_row.size(); ++i) by_row[i] = static_cast<T>(std::sqrt(mean / static_cast<double>(r[i])));
  }
  move(c, column_sums(rows, columns, square), rows);
  for (size_t j = 0; j < by_column.size(); ++j) by_column[j] = static_cast<T>(1 / std::sqrt(static_cast<double>(c[j])));
  const T *of_row = by_row.data(), *of_column = by_column.data();
  const auto u = [=](int64_t i, int64_t j) GODWIT_INLINE { return g[i * columns + j] * of_row[i] * of_column[j]; };
  const auto root_mean_square = [=](const auto& value) {
    const auto term = [=](int64_t i, int64_t j) GODWIT_INLINE { return squared(value(i, j)); };
    return std::sqrt(lane_sum(row_sums(rows, columns, term)) / static_cast<double>(rows * columns));
  };
  double lr = a.lr;
  if (a.relative)
    lr *= std::max(adafactor::kLeastSize,
                   root_mean_square([=](int64_t i, int64_t j) GODWIT_INLINE { return x[i * columns + j]; }));
  const T keep = m.decays ? a.keep : T{1};
  const T move_by = static_cast<T>(lr / std::max(1.0, root_mean_square(u) / a.clip_update));
  vector_for(rows, row_grain(columns), [=](int64_t begin, int64_t end) GODWIT_INLINE {
    for (int64_t i = begin; i < end; ++i) {
      T* __restrict row = x + i * columns;
      for (int64_t j = 0; j < columns; ++j) row[j] = keep * row[j] - move_by * u(i, j);
    }
  });
}

template <class T>
void update(Cpu, const adafactor::Matrices& matrices, const adafactor::Args<T>& a) {
  for (const adafactor::Matrix& m : matrices.all)
    if (m.rows > 0) update(m, a);
}

// The parameters of a bucket, with means of 0.
adafactor::Matrices matrices_of(const Bucket& bucket, bool decay_norm_and_bias) {
  adafactor::Matrices result{};
  adafactor::Matrix& m = result.end;
  const auto [owned_begin, owned_end] = bucket.owned;
  for (const Slot& slot : bucket.slots) {
    const int64_t end = std::clamp(slot.offset + slot.numel, owned_begin, owned_end);
    m.element = std::clamp(slot.offset, owned_begin, owned_end);
    check(m.element == end || end - m.element == slot.numel, "adafactor: the shards cut parameter '", slot.name,
          "', but an update needs the whole parameter; shard whole parameters (a block size of 0)");
    m.vector = slot.var.shape().rank() < 2;
    m.decays = slot.decay || decay_norm_and_bias;
    m.rows = m.element == end ? 0 : m.vector ? 1 : slot.var.shape()[0];
    m.columns = m.rows == 0 ? 0 : slot.numel / m.rows;
    m.chunk = column_chunk(m.rows);
    result.all.push_back(m);
    m.element = end, m.row += m.rows, m.column += m.columns, ++m.index;
    m.partial += (m.rows + m.chunk - 1) / m.chunk * m.columns;
    m.piece += (m.rows * m.columns + adafactor::kPiece - 1) / adafactor::kPiece;
  }
  result.row = Tensor::zeros({m.row}, bucket.param.dtype());
  result.column = Tensor::zeros({m.column}, bucket.param.dtype());
  const std::span bytes(reinterpret_cast<const uint8_t*>(result.all.data()), result.all.size() * sizeof(m));
  result.table = Tensor::of(bytes, {std::ssize(bytes)});
  return result;
}

}  // namespace

void Adafactor::Options::describe(OptionList& list) {
  describe_common(*this, list);
  list.add("eps", eps, "added to squared gradients", kPositiveFloat);
  list.add("decay_exponent", decay_exponent, "c in beta2 = 1 - t^-c, the decay rate at step t", kAboveZeroToOne);
  list.add("clip_update", clip_update, "largest root mean square of a parameter's update, before lr", kPositive);
  list.add("relative", relative,
           "multiply lr by the root mean square of each parameter; if false, choose lr as for adam");
}

Adafactor::Adafactor(const Options& options, const Buckets& buckets, std::unique_ptr<Exchange> exchange)
    : Optimizer(std::move(exchange)), options_(options) {
  for (const Bucket& bucket : buckets) {
    const adafactor::Matrices& matrices = matrices_.emplace_back(matrices_of(bucket, options.decay_norm_and_bias));
    for (const adafactor::Matrix& m : matrices.all) {
      const auto keep = [&](const char* name, const Tensor& means) {
        state_.push_back({name, bucket.begin + m.element, means, bucket.shards.empty()});
      };
      if (m.rows == 0) continue;
      if (!m.vector) keep("v_row", matrices.row.range(m.row, m.rows));
      keep(m.vector ? "v" : "v_column", matrices.column.range(m.column, m.columns));
    }
  }
}

void Adafactor::apply(Bucket& bucket, const StepInfo& step) {
  const size_t b = static_cast<size_t>(bucket.index);
  check(b < matrices_.size() && matrices_[b].all.size() == bucket.slots.size(), "adafactor: bucket ", bucket.index,
        " was not passed to the constructor; use the same buckets");
  const adafactor::Matrices& matrices = matrices_[b];
  on_device(bucket.param, [&](auto device) {
    dispatch_real(bucket.param.dtype(), "adafactor", [&]<class T>() {
      update(device, matrices,
             adafactor::Args<T>{.x = data_ptr<T>(device, bucket.param),
                                .g = data_ptr<T>(device, bucket.grad),
                                .row = data_ptr<T>(device, matrices.row),
                                .column = data_ptr<T>(device, matrices.column),
                                .beta2 = 1 - std::pow(static_cast<double>(step.step), -options_.decay_exponent),
                                .eps = options_.eps,
                                .lr = step.lr,
                                .clip_update = options_.clip_update,
                                .relative = options_.relative,
                                .keep = static_cast<T>(1 - step.lr * options_.weight_decay)});
    });
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
      .needs_whole_parameters = [](const AnyOptions&) { return true; },
      .relative_lr = true,
      .make = make_with_exchange<Adafactor>,
  };
  return method;
}

}  // namespace godwit
