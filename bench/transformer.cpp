// Times the operations of a transformer except attention, at BERT-Base's sizes with 8 sequences of 128 tokens.
// Memory-bound operations are compared with a copy of as many bytes in the same run; rotating buffers keep inputs out
// of the caches. linear is compared with a plain matrix product.
//  bench_transformer [THREADS…]; default: 1 and 2
#include <cmath>
#include <cstdio>

#include "autograd/ops/bias.h"
#include "autograd/ops/dropout.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/gelu.h"
#include "autograd/ops/normalization/layer_norm.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "autograd/ops/tanh.h"
#include "bench/measure.h"
#include "bench/program.h"
#include "engine/gemm.h"

using namespace godwit;

namespace {

constexpr int64_t kTokens = 1024, kWidth = 768, kInner = 3072, kVocabulary = 30522, kMasked = 1000;
const DropoutKey kKey{1, 2, 3, 0};

// Inputs and outputs of one call.
struct Set {
  Tensor x, dy, other, y, dx;
};

std::vector<Set> sets_of(Shape shape, DType dtype) {
  std::vector<Set> sets(sets_beyond_caches(5 * shape.numel() * size_of(dtype)));
  for (Set& s : sets)
    s = {random_tensor(shape, dtype, 1), random_tensor(shape, dtype, 2), random_tensor(shape, dtype, 3),
         Tensor::zeros(shape, dtype), Tensor::zeros(shape, dtype)};
  return sets;
}

class Bench {
 public:
  explicit Bench(DType dtype) : dtype_(dtype), copy_(copy_rate()) {
    std::printf("%d thread%s, %s: copy %.1f GB/s\n", context().threads, context().threads > 1 ? "s" : "",
                name_of(dtype), copy_ * 1e-6);
  }
  DType dtype() const { return dtype_; }

  // f reads or writes `passes` tensors of the sets' shape.
  template <class F>
  void operator()(const char* name, const std::vector<Set>& sets, double passes, const F& f) const {
    const double ms = median_ms(sets, f), moved = passes * static_cast<double>(sets[0].x.bytes());
    std::printf("  %-34s %8.3f ms, %7.1f MB, %5.2f of the floor\n", name, ms, moved * 1e-6, ms / (moved / copy_));
    std::fflush(stdout);
  }

 private:
  DType dtype_;
  double copy_;  // bytes per ms
};

void on_hidden_states(const Bench& bench) {
  const std::vector<Set> sets = sets_of({kTokens, kWidth}, bench.dtype());
  const Tensor gamma = Tensor::full({kWidth}, 1), beta = Tensor::zeros({kWidth}), d_gamma({kWidth}), d_beta({kWidth});
  const Tensor mean({kTokens}), inv_std({kTokens}), none;
  bench("layer_norm", sets, 2,
        [&](const Set& s) { layer_norm_forward(Cpu{}, s.x, none, gamma, beta, 1e-12, s.x, s.y, mean, inv_std); });
  bench("add_layer_norm", sets, 4,
        [&](const Set& s) { layer_norm_forward(Cpu{}, s.x, s.other, gamma, beta, 1e-12, s.dx, s.y, mean, inv_std); });
  bench("layer_norm backward", sets, 3,
        [&](const Set& s) { layer_norm_backward(Cpu{}, s.x, gamma, mean, inv_std, s.dy, s.dy, d_gamma, d_beta); });
  bench("dropout", sets, 2, [](const Set& s) { dropout_forward(Cpu{}, s.x, 0.1, kKey, s.y); });
  bench("tanh", sets, 2, [](const Set& s) { tanh_forward(Cpu{}, s.x, s.y); });
  bench("tanh backward", sets, 3, [](const Set& s) { tanh_backward(Cpu{}, s.x, s.dy, s.dy); });
  bench("bias backward", sets, 1, [&](const Set& s) { bias_backward(Cpu{}, s.dy, d_beta); });
}

void on_inner_states(const Bench& bench) {
  const std::vector<Set> sets = sets_of({kTokens, kInner}, bench.dtype());
  for (const auto& [form, name, backward] : {std::tuple{Gelu::erf, "gelu", "gelu backward"},
                                             {Gelu::tanh, "gelu (tanh form)", "gelu (tanh form) backward"}}) {
    bench(name, sets, 2, [form = form](const Set& s) { gelu_forward(Cpu{}, s.x, form, s.y); });
    bench(backward, sets, 3, [form = form](const Set& s) { gelu_backward(Cpu{}, s.x, s.dy, form, s.dy); });
  }
  const Tensor d_bias({kInner});
  bench("bias backward", sets, 1, [&](const Set& s) { bias_backward(Cpu{}, s.dy, d_bias); });
}

Tensor random_ids(int64_t n, int64_t below) {
  const Tensor ids({n}, DType::i32);
  RandomStream random(1, Purpose::test);
  for (int32_t& id : ids.span<int32_t>()) id = static_cast<int32_t>(random.below(static_cast<uint32_t>(below)));
  return ids;
}

void on_the_vocabulary(const Bench& bench) {
  const Tensor table = random_tensor({kVocabulary, kWidth}, bench.dtype(), 1), ids = random_ids(kTokens, kVocabulary);
  const Tensor types = random_ids(kTokens, 2);
  const std::vector<Set> hidden = sets_of({kTokens, kWidth}, bench.dtype());
  bench("embedding", hidden, 2, [&](const Set& s) { embedding_forward(Cpu{}, ids, table, s.y); });
  bench("embedding backward", hidden, 3, [&](const Set& s) { embedding_backward(Cpu{}, ids, s.dy, table); });
  const Tensor two = Tensor::zeros({2, kWidth}, bench.dtype());
  bench("embedding backward, of two rows", hidden, 1,
        [&](const Set& s) { embedding_backward(Cpu{}, types, s.dy, two); });
  if (bench.dtype() != DType::f32) return;
  const std::vector<Set> logits = sets_of({kMasked, kVocabulary}, DType::f32);
  const Tensor labels = random_ids(kMasked, kVocabulary), losses({kMasked}, DType::f64),
               log_sums({kMasked}, DType::f64), one = Tensor::full({}, 1);
  bench("softmax_cross_entropy", logits, 1,
        [&](const Set& s) { softmax_cross_entropy_forward(Cpu{}, s.x, labels, 0, {}, losses, log_sums); });
  bench("softmax_cross_entropy backward", logits, 2,
        [&](const Set& s) { softmax_cross_entropy_backward(Cpu{}, s.x, labels, 0, {}, log_sums, one, 1, s.x); });
}

// Times y [n, out] = x [n, in] · wᵀ and its gradients. In float32, the times are relative to gemm() alone.
void linear(DType dtype, int64_t in, int64_t out) {
  struct Product {
    Tensor x, w, bias, y;
  };
  const std::vector<Product> sets{{random_tensor({kTokens, in}, dtype, 1), random_tensor({out, in}, DType::f32, 2),
                                   random_tensor({out}, DType::f32, 3), random_tensor({kTokens, out}, dtype, 4)}};
  const double flops = 2 * static_cast<double>(kTokens * in * out);
  auto report = [&](const char* name, const auto& f, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                    auto operands) {
    const auto bare = [&](const Product& p) {
      const auto [a, b, c] = operands(p);
      gemm(Cpu{}, trans_a, trans_b, m, n, k, 1.f, a.template data<float>(), a.dim(1), b.template data<float>(),
           b.dim(1), 0.f, c.template data<float>(), n);
    };
    const double ms = median_ms(sets, f);
    std::printf("  %-34s %8.2f ms, %6.1f GFLOP/s", name, ms, flops / ms * 1e-6);
    if (dtype == DType::f32) std::printf(", %5.2f of gemm's time", ms / median_ms(sets, bare));
    std::printf("\n");
    std::fflush(stdout);
  };
  std::printf("  linear [%d, %d] to %d\n", static_cast<int>(kTokens), static_cast<int>(in), static_cast<int>(out));
  report(
      "forward with bias", [](const Product& p) { linear_forward(Cpu{}, p.x, {p.w}, {p.bias}, p.y); }, false, true,
      kTokens, out, in,
      [](const Product& p) {
        return std::tuple{p.x, p.w, p.y};
      });
  report(
      "backward to x", [](const Product& p) { linear_backward_data(Cpu{}, p.y, {p.w}, p.x); }, false, false, kTokens,
      in, out,
      [](const Product& p) {
        return std::tuple{p.y, p.w, p.x};
      });
  report(
      "backward to weight and bias",
      [](const Product& p) { linear_backward_weights(Cpu{}, p.x, p.y, {p.w}, {p.bias}); }, true, false, out, in,
      kTokens,
      [](const Product& p) {
        return std::tuple{p.y, p.x, p.w};
      });
}

// Checks forward kernels in float32 against their formulas in double precision.
void check_results() {
  const Shape shape{33, 70};
  const Tensor x = random_tensor(shape, DType::f32, 1), b = random_tensor(shape, DType::f32, 2), y(shape);
  gelu_forward(Cpu{}, x, Gelu::erf, y);
  check_elements("gelu", y, [&](int64_t i) { return x.item(i) * 0.5 * std::erfc(-x.item(i) / std::sqrt(2)); });
  tanh_forward(Cpu{}, x, y);
  check_elements("tanh", y, [&](int64_t i) { return std::tanh(x.item(i)); });
  dropout_forward(Cpu{}, x, 0.5, kKey, y);
  check_elements("dropout", y, [&](int64_t i) {
    const auto word = random_word(kKey.seed, i, kKey.step, static_cast<Purpose>(kKey.purpose()), kKey.sender);
    return to_unit(word) < 0.5f ? 0 : 2 * x.item(i);
  });
  const Tensor one = Tensor::full({70}, 1), zero = Tensor::zeros({70}), mean({33}), inv_std({33});
  layer_norm_forward(Cpu{}, x, b, one, zero, 1e-12, y, y, mean, inv_std);
  check_elements("add_layer_norm", y, [&](int64_t i) {
    const int64_t row = i / 70;
    return (x.item(i) + b.item(i) - mean.item(row)) * inv_std.item(row);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const char* usage =
      "usage: bench_transformer [THREADS…]\n"
      "Operations of a transformer except attention, at BERT-Base's sizes with 8 sequences of 128 tokens.\n"
      "THREADS: thread counts to measure (1 and 2)";
  return bench::run_program(argc, argv, usage, [&] {
    check_results();
    for_threads_and_types(argc, argv, [](DType dtype) {
      const Bench bench(dtype);
      on_hidden_states(bench);
      on_inner_states(bench);
      on_the_vocabulary(bench);
      linear(dtype, kWidth, kWidth);
      linear(dtype, kWidth, kInner);
      linear(dtype, kInner, kWidth);
    });
  });
}
