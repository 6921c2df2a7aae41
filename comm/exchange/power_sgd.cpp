#include "comm/exchange/power_sgd.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "comm/buckets/finite.h"
#include "comm/compress/low_rank.h"
#include "comm/compress/wire/block_math.h"
#include "comm/compress/wire/gather_scatter.h"
#include "comm/exchange/shared_options.h"
#include "comm/host_tensor.h"
#include "engine/data_ptr.h"
#include "engine/parallel.h"
#include "engine/philox.h"

namespace godwit {
namespace {

// A parameter as a matrix M [rows, cols] of its bucket. P and Q are stored transposed, [rank, rows] at `p` of the first
// message and [rank, cols] at `q` of the second.
struct Matrix {
  int64_t begin, rows, cols, p, q;
};

// Values that are sent uncompressed, at `at` of the first message.
struct Plain {
  int64_t begin, n, at;
};

class PowerSgd : public Exchange {
 public:
  PowerSgd(const PowerSgdOptions& options, const Buckets& buckets, uint64_t seed)
      : rank_(options.rank), feedback_(options.error_feedback == ErrorFeedback::worker), seed_(seed) {
    for (const Bucket& bucket : buckets) add_part(bucket);
  }

  void mean(Bucket& bucket, Communicator& comm, int64_t step) override {
    on_device(bucket.grad, [&](auto device) { mean_on(device, bucket, comm, step); });
  }

  std::vector<StateTensor> state() const override {
    std::vector<StateTensor> all;
    for (const BucketState& state : states_)
      for (const Matrix& m : state.matrices) {
        const int64_t begin = state.bucket_begin + m.begin;
        if (state.e.defined()) all.push_back({"e", begin, state.e.range(m.begin, m.rows * m.cols), false});
        all.push_back({"q", begin, state.q.range(m.q, rank_ * m.cols), true});
      }
    return all;
  }

  std::string summary(Group& world) const override {
    double matrices = 0;  // with sharding hybrid, each rank has some of the parameters
    for (const BucketState& state : states_) matrices += static_cast<double>(state.matrices.size());
    const Tensor all = cpu_tensor<double>({matrices});
    world.all_reduce(all, Reduce::sum, "summary");
    if (all.item(0) > 0) return {};
    return detail::concat("powersgd: warning: no parameter is smaller as two factors of rank ", rank_,
                          ", so all gradients were sent in float32; lower exchange.rank, or use exchange dense");
  }

 private:
  struct BucketState {
    int64_t bucket_begin = 0;
    std::vector<Matrix> matrices = {};
    std::vector<Plain> plain = {};
    int64_t first = 0, second = 0;  // number of values in the messages
    Tensor q = {};                  // [second]: Q, identical on all ranks
    Tensor e = {};                  // [numel], used only for matrices
  };

  template <class Where>
  void mean_on(Where device, Bucket& bucket, Communicator& comm, int64_t step) {
    BucketState& state = states_.at(static_cast<size_t>(bucket.index));
    const Tensor first({state.first}), second({state.second});
    float *g = data_ptr<float>(device, bucket.grad), *p = data_ptr<float>(device, first);
    float *q = data_ptr<float>(device, second), *kept_q = data_ptr<float>(device, state.q);
    float *e = feedback_ ? data_ptr<float>(device, state.e) : nullptr, *z = e ? e : g;

    bool finite = true;
    for (const Matrix& m : state.matrices) finite &= project(device, m, g, e, kept_q + m.q, p + m.p);
    for (const Plain& x : state.plain) first.range(x.at, x.n).copy_from(bucket.grad.range(x.begin, x.n));
    if (!finite || !checked(device, state, bucket, step)) fail_not_finite("powersgd", step, bucket);
    comm.world->all_reduce(first, Reduce::mean, "powersgd/all_reduce_p");
    for (const Plain& x : state.plain) bucket.grad.range(x.begin, x.n).copy_from(first.range(x.at, x.n));
    for (const Matrix& m : state.matrices) {
      orthogonalize(device, m, bucket.begin, step, p + m.p);
      project_back(device, m, z + m.begin, p + m.p, q + m.q);
      if (e) multiply(device, m, p + m.p, q + m.q, true, z);
    }
    if (state.second == 0) return;
    comm.world->all_reduce(second, Reduce::mean, "powersgd/all_reduce_q");
    state.q.copy_from(second);
    for (const Matrix& m : state.matrices) multiply(device, m, p + m.p, q + m.q, false, g);
  }

  // Whether the values that project() has not checked are finite.
  static bool checked(Cpu, const BucketState& state, const Bucket& bucket, int64_t) {
    bool finite = true;
    for (const Plain& x : state.plain) finite &= block::all_finite(bucket.grad.data<float>() + x.begin, x.n);
    return finite;
  }
  static bool checked(Cuda, const BucketState& state, const Bucket& bucket, int64_t step) {  // by read_on_host()
    find_not_finite(bucket.grad, bucket.numel,
                    [&bucket, step](const NotFinite& bad) { fail_not_finite("powersgd", step, bucket, bad); });
    if (state.e.defined())
      find_not_finite(state.e, bucket.numel,
                      [&bucket, step](const NotFinite&) { fail_kept_not_finite("powersgd", step, bucket); });
    return true;
  }

  void add_part(const Bucket& bucket) {
    check(bucket.param.dtype() == DType::f32, "powersgd: gradients are ", bucket.param.dtype(),
          ", expected float32; use exchange dense");
    const int64_t rank = rank_;
    BucketState state{.bucket_begin = bucket.begin};
    for (const Slot& slot : bucket.slots) {
      const Shape shape = slot.var.shape();
      const int64_t rows = shape.rank() >= 2 ? shape[0] : 1, cols = rows > 0 ? slot.numel / rows : 0;
      const int64_t sides = rows + cols;
      if (sides == 0 || rank >= (slot.numel + sides - 1) / sides) {  // rank · sides may overflow
        state.plain.push_back({slot.offset, slot.numel, state.first});
        state.first += slot.numel;
      } else {
        state.matrices.push_back({slot.offset, rows, cols, state.first, state.second});
        state.first += rank * rows;
        state.second += rank * cols;
      }
    }
    std::vector<float> q(static_cast<size_t>(state.second));
    for (const Matrix& m : state.matrices)
      for (int64_t k = 0; k < rank; ++k)
        random_vector(bucket.begin + m.begin, 0, static_cast<uint32_t>(k), q.data() + m.q + k * m.cols, m.cols);
    state.q = Tensor::of(q, {state.second});
    if (feedback_) state.e = Tensor::zeros({bucket.numel});
    states_.push_back(std::move(state));
  }

  // Uniform in [−1, 1), keyed by the parameter's global offset, the step and the column.
  void random_vector(int64_t element, int64_t step, uint32_t column, float* x, int64_t n) const {
    for (int64_t i = 0; i < n; ++i)
      x[i] =
          2 * to_unit(random_word(seed_, element + i, static_cast<uint32_t>(step), Purpose::coordinates, column)) - 1;
  }

  low_rank::Sizes sizes(const Matrix& m) const { return {m.rows, m.cols, rank_}; }

  bool project(Cuda device, const Matrix& m, const float* g, float* e, const float* q, float* p) const {
    if (e) add_values(device, g + m.begin, e + m.begin, m.rows * m.cols);
    low_rank::project(device, sizes(m), (e ? e : g) + m.begin, q, p);
    return true;  // mean_on() checks for non-finite values afterwards
  }
  void orthogonalize(Cuda device, const Matrix& m, int64_t bucket_begin, int64_t step, float* p) const {
    low_rank::orthogonalize(device, sizes(m), seed_, bucket_begin + m.begin, step, p);
  }
  void project_back(Cuda device, const Matrix& m, const float* z, const float* p, float* q) const {
    low_rank::project_back(device, sizes(m), z, p, q);
  }
  void multiply(Cuda device, const Matrix& m, const float* p, const float* q, bool subtract, float* x) const {
    low_rank::multiply(device, sizes(m), p, q, subtract, x + m.begin);
  }

  // z = g + e (stored in e; e null: z = g);  P = z·Q. Returns whether z is finite.
  bool project(Cpu, const Matrix& m, const float* g, float* e, const float* q, float* p) const {
    std::atomic<bool> finite{true};
    parallel_for(m.rows, grain(m.cols), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float* row = g + m.begin + i * m.cols;
        if (e) {
          float* z = e + m.begin + i * m.cols;
          block::add(row, z, z, m.cols);
          row = z;
        }
        if (!block::all_finite(row, m.cols)) finite = false;
        for (int64_t k = 0; k < rank_; ++k)
          p[k * m.rows + i] = static_cast<float>(block::dot(row, q + k * m.cols, m.cols));
      }
    });
    return finite;
  }

  // Orthonormalizes the columns of P in order (modified Gram-Schmidt). A linearly dependent column (for example when
  // the gradient is 0) is replaced by a random one, since a zero column would stay zero.
  void orthogonalize(Cpu, const Matrix& m, int64_t bucket_begin, int64_t step, float* p) const {
    for (int64_t k = 0; k < rank_; ++k) {
      float* column = p + k * m.rows;
      const double before = std::sqrt(block::dot(column, column, m.rows));
      double length = orthogonal_to_earlier(m, k, p);
      if (!(length > 1e-6 * before)) {
        random_vector(bucket_begin + m.begin, step, static_cast<uint32_t>(k), column, m.rows);
        length = orthogonal_to_earlier(m, k, p);
      }
      block::divide(column, static_cast<float>(length), m.rows);
    }
  }

  static double orthogonal_to_earlier(const Matrix& m, int64_t k, float* p) {
    float* column = p + k * m.rows;
    for (int64_t j = 0; j < k; ++j) {
      const float* earlier = p + j * m.rows;
      block::add_times(earlier, -static_cast<float>(block::dot(earlier, column, m.rows)), column, m.rows);
    }
    return std::sqrt(block::dot(column, column, m.rows));
  }

  // Q = zᵀ·P, row by row of z.
  void project_back(Cpu, const Matrix& m, const float* z, const float* p, float* q) const {
    parallel_for(
        m.cols, grain(m.rows),
        [&](int64_t begin, int64_t end) {
          for (int64_t k = 0; k < rank_; ++k) std::fill(q + k * m.cols + begin, q + k * m.cols + end, 0.0f);
          for (int64_t i = 0; i < m.rows; ++i)
            for (int64_t k = 0; k < rank_; ++k)
              block::add_times(z + i * m.cols + begin, p[k * m.rows + i], q + k * m.cols + begin, end - begin);
        },
        16);
  }

  // M ← P·Qᵀ, or with `subtract` M − P·Qᵀ, where M is the matrix within x.
  void multiply(Cpu, const Matrix& m, const float* p, const float* q, bool subtract, float* x) const {
    parallel_for(m.rows, grain(m.cols), [&](int64_t begin, int64_t end) {
      std::vector<float> product(static_cast<size_t>(m.cols));
      for (int64_t i = begin; i < end; ++i) {
        std::fill(product.begin(), product.end(), 0.0f);
        for (int64_t k = 0; k < rank_; ++k) block::add_times(q + k * m.cols, p[k * m.rows + i], product.data(), m.cols);
        float* row = x + m.begin + i * m.cols;
        if (subtract) block::subtract(row, product.data(), row, m.cols);
        else std::copy(product.begin(), product.end(), row);
      }
    });
  }

  int64_t grain(int64_t length) const { return std::max<int64_t>(1, (1 << 15) / (rank_ * length)); }

  int64_t rank_;
  bool feedback_;
  uint64_t seed_;
  std::vector<BucketState> states_;
};

}  // namespace

void PowerSgdOptions::describe(OptionList& list) {
  list.add("rank", rank, "rank of the approximations", kAtLeastOne);
  add_error_feedback(list, error_feedback).with_choices({"worker", "none"});  // no owner compresses a mean
}

const ExchangeMethod& powersgd_method() {
  static const ExchangeMethod method{
      .name = "powersgd",
      .help = "two low-rank factors of each gradient matrix, with error feedback",
      .paper =
          "Vogels et al., PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization, "
          "arXiv:1905.13727, 2019",
      .bytes =
          "rank·(rows + columns) float32 per matrix, and one float32 per value of other parameters, to the owners; "
          "and the same amount back",
      .defaults = PowerSgdOptions{},
      .make = [](const AnyOptions& options, const ExchangeInputs& in) -> std::unique_ptr<Exchange> {
        return std::make_unique<PowerSgd>(options.as<PowerSgdOptions>(), in.buckets, in.seed);
      }};
  return method;
}

}  // namespace godwit
