// Every op on a GPU compared with the CPU: values and gradients, through the functions that models call.
#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>
#include <map>

#include "autograd/leaf.h"
#include "autograd/ops/add.h"
#include "autograd/ops/attention/self_attention.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/column.h"
#include "autograd/ops/dropout.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/experts.h"
#include "autograd/ops/gelu.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/lstm.h"
#include "autograd/ops/matmul.h"
#include "autograd/ops/normalization/layer_norm.h"
#include "autograd/ops/normalization/rms_norm.h"
#include "autograd/ops/pooling/adaptive_avg_pool2d.h"
#include "autograd/ops/pooling/global_avg_pool.h"
#include "autograd/ops/pooling/pool2d.h"
#include "autograd/ops/prepend_token.h"
#include "autograd/ops/relu.h"
#include "autograd/ops/reshape.h"
#include "autograd/ops/rotary.h"
#include "autograd/ops/scale.h"
#include "autograd/ops/softmax.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "autograd/ops/subsample_pad.h"
#include "autograd/ops/swiglu.h"
#include "autograd/ops/tanh.h"
#include "autograd/ops/transpose.h"
#include "tests/autograd/gradient_check.h"
#include "tests/autograd/ops/linear_cases.h"
#include "tests/on_gpu.h"
#include "tests/support.h"

namespace godwit {
namespace cuda_parity_test {

using test::random_tensor, test::values;

using Inputs = std::vector<Tensor>;
using Op = std::function<Var(const std::vector<Var>&)>;

// Half a unit in the last place of a type, relative to the largest value of a result.
double unit(DType dtype) { return dtype == DType::f64 ? 0x1p-53 : dtype == DType::f32 ? 0x1p-24 : 0x1p-8; }

// A copy of x on the context's device, `offset` elements behind an address that is aligned to 16 bytes.
Tensor placed(const Tensor& x, int64_t offset) {
  const Tensor all({x.numel() + offset}, x.dtype(), context().device),
      at = all.range(offset, x.numel()).view(x.shape());
  at.copy_from(x);
  return at;
}

// Returns the value of an op and the gradients of all inputs for one dy. If dy is not held, backward may overwrite it.
// Inputs and dy begin `offset` elements behind an aligned address.
std::vector<Tensor> results(const Op& op, const Inputs& inputs, bool dy_is_held, int64_t offset = 0) {
  std::vector<Var> leaves;
  for (const Tensor& x : inputs) leaves.emplace_back(placed(x, offset), true);
  const Var y = op(leaves);
  const Tensor dy = placed(random_tensor(y.shape(), DType::f32, 99).to(y.dtype()), offset);
  std::vector<Tensor> all{y.value().to(kCpu).clone()};
  const Var loss = Var::result(Tensor::zeros({}, DType::f32), {y},
                               [=, g = y.gradient()](const Tensor&) { g.add(dy_is_held ? dy : placed(dy, offset)); });
  backward(loss);
  for (const Var& leaf : leaves) all.push_back(leaf.has_grad() ? leaf.grad().to(kCpu) : Tensor());
  return all;
}

// Settings of the emulator (tests/emulated_cuda/README.md). A GPU ignores them.
class EmulatorSettings {
 public:
  EmulatorSettings(int order, int multiprocessors) {
    setenv("GODWIT_EMULATED_ORDER", std::to_string(order).c_str(), 1);
    setenv("GODWIT_EMULATED_MULTIPROCESSORS", std::to_string(multiprocessors).c_str(), 1);
  }
  ~EmulatorSettings() {
    unsetenv("GODWIT_EMULATED_ORDER");
    unsetenv("GODWIT_EMULATED_MULTIPROCESSORS");
  }
};

class CudaParity : public OnGpu {
 protected:
  // The tolerance is `units` half units in the last place of the largest value, or of 0.1 if there is one value, which
  // may be a small difference of larger values; 0 units require equal bits. With `as_bf16`, all results are rounded to
  // bfloat16 first.
  void expect_same(const Op& op, const Inputs& inputs, double units, const std::string& what = "",
                   bool as_bf16 = false) {
    const auto rounded = [&](const Tensor& x) { return as_bf16 ? x.to(DType::bf16) : x; };
    ASSERT_FALSE(context().tf32);
    for (const bool held : {true, false}) {
      const auto expected = results(op, inputs, held);
      for (const int64_t offset : {0, 1}) {  // parameters begin at any element of a bucket
        if (held && offset != 0) continue;
        const auto found = on_gpu([&] { return results(op, inputs, held, offset); });
        ASSERT_EQ(found.size(), expected.size());
        for (size_t k = 0; k < expected.size(); ++k)
          compare(rounded(found[k]), rounded(expected[k]), units,
                  what + name(k) + (offset != 0 ? ", off alignment" : ""));
        if (held) expect_same_bits_again(op, inputs, found, what);
      }
    }
  }

  static void compare(const Tensor& found, const Tensor& expected, double units, const std::string& what) {
    ASSERT_EQ(found.defined(), expected.defined()) << what;
    if (!found.defined()) return;
    ASSERT_EQ(found.shape(), expected.shape()) << what;
    ASSERT_EQ(found.dtype(), expected.dtype()) << what;
    const std::vector<double> f = values(found), e = values(expected);
    double largest = e.size() == 1 ? 0.1 : 0;
    for (const double value : e)
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < e.size(); ++i) {
      if (f[i] == e[i] || (std::isnan(f[i]) && std::isnan(e[i]))) continue;
      ASSERT_LE(std::abs(f[i] - e[i]), units * unit(found.dtype()) * largest)
          << what << ", element " << i << ": " << f[i] << ", on the CPU " << e[i];
    }
  }

 private:
  // Repeats the run. The emulator uses other numbers of multiprocessors, and random orders of blocks and threads.
  void expect_same_bits_again(const Op& op, const Inputs& inputs, const std::vector<Tensor>& before,
                              const std::string& what) {
    const int multiprocessors = ++runs_ % 2 ? 7 : 132;
    const EmulatorSettings settings(runs_, multiprocessors);
    auto& gpu = other_gpus_[multiprocessors];
    if (!gpu) gpu = context_on(cuda_device(0));
    const ContextGuard guard(*gpu);
    const auto again = results(op, inputs, true);
    for (size_t k = 0; k < before.size(); ++k) {
      if (!before[k].defined()) continue;
      const auto bytes = static_cast<size_t>(before[k].bytes());
      ASSERT_EQ(std::memcmp(again[k].address(), before[k].address(), bytes), 0)
          << what << name(k) << ": other bits with " << multiprocessors << " multiprocessors, order " << runs_;
    }
  }

  int runs_ = 0;
  std::map<int, std::optional<Context>> other_gpus_;

  static std::string name(size_t k) {
    return k == 0 ? ": the value" : detail::concat(": the gradient of input ", k - 1);
  }
};

const DType kTypes[] = {DType::f32, DType::bf16, DType::f64};

Tensor random(Shape shape, DType dtype, uint64_t seed = 1, double scale = 1) {
  return random_tensor(shape, DType::f64, seed, scale).to(dtype);
}

// One pack, no full pack, odd sizes, and more elements than threads in a launch.
const Shape kShapes[] = {{}, {1}, {8}, {17}, {3, 5}, {2, 3, 4, 8}, {4099}, {20, 1000}};

TEST_F(CudaParity, ElementwiseOpsHaveEqualBits) {
  for (const DType type : kTypes)
    for (const Shape& shape : kShapes) {
      const Tensor a = random(shape, type, 1), b = random(shape, type, 2);
      const std::string what = detail::concat(type, " ", shape);
      expect_same([](const auto& in) { return ops::add(in[0], in[1]); }, {a, b}, 0, "add " + what);
      expect_same([](const auto& in) { return ops::add(in[0], in[0]); }, {a}, 0, "add to itself " + what);
      expect_same([](const auto& in) { return ops::add_relu(in[0], in[1]); }, {a, b}, 0, "add_relu " + what);
      expect_same([](const auto& in) { return ops::relu(in[0]); }, {a}, 0, "relu " + what);
      expect_same([](const auto& in) { return ops::scale(in[0], 0.3); }, {a}, 0, "scale " + what);
      expect_same([](const auto& in) { return ops::dropout(in[0], 0.3, {7, 3, 2, 1}); }, {a}, 0, "dropout " + what);
      expect_same([&](const auto& in) { return ops::reshape(in[0], {shape.numel()}); }, {a}, 0, "reshape " + what);
      for (const DType to : kTypes)
        expect_same([=](const auto& in) { return ops::cast(in[0], to); }, {a}, 0, detail::concat("to ", to, " ", what));
    }
}

TEST_F(CudaParity, ReluKeepsNan) {
  const Tensor x = Tensor::of<float>({-1, -0.0f, 0, 2, std::numeric_limits<float>::quiet_NaN()}, {5});
  expect_same([](const auto& in) { return ops::relu(in[0]); }, {x}, 0);
}

// nvcc contracts products and sums into FMAs. The functions stay within a few units either way.
TEST_F(CudaParity, ActivationFunctions) {
  for (const DType type : kTypes)
    for (const Shape& shape : kShapes) {
      const Tensor x = random(shape, type, 3, 3);
      const std::string what = detail::concat(type, " ", shape);
      expect_same([](const auto& in) { return ops::tanh(in[0]); }, {x}, 8, "tanh " + what);
      expect_same([](const auto& in) { return ops::gelu(in[0]); }, {x}, 8, "gelu " + what);
      expect_same([](const auto& in) { return ops::gelu(in[0], true); }, {x}, 16, "gelu, tanh " + what);
      const Tensor up = random(shape, type, 4);
      expect_same([](const auto& in) { return ops::swiglu(in[0], in[1]); }, {x, up}, 16, "swiglu " + what);
    }
}

// Sums over c values in another order: each has an error of c half units of the terms' magnitudes.
TEST_F(CudaParity, Softmax) {
  for (const DType type : kTypes)
    for (const Shape& shape : {Shape{1, 1}, Shape{3, 10}, Shape{5, 33}, Shape{2, 257}, Shape{3, 1000}}) {
      const Tensor x = random(shape, type, 4, 2), mask({shape[0], shape[1]}, DType::u8);
      for (int64_t i = 0; i < mask.numel(); ++i) mask.data<uint8_t>()[i] = i >= shape[1] && i % 3 != 0;
      const std::string what = detail::concat("softmax ", type, " ", shape);
      expect_same([](const auto& in) { return ops::softmax(in[0]); }, {x}, 64, what);
      expect_same([=](const auto& in) { return ops::softmax(in[0], mask); }, {x}, 64, what + " masked");
    }
}

TEST_F(CudaParity, SoftmaxCrossEntropy) {
  for (const DType type : {DType::f32, DType::f64})
    for (const auto& [n, classes] : {std::pair<int64_t, int64_t>{1, 1}, {3, 10}, {70, 33}, {4, 5003}})
      for (const double smoothing : {0.0, 0.1})
        for (const std::optional<int32_t> ignore : {std::optional<int32_t>(), std::optional(-100)}) {
          const Tensor logits = random({n, classes}, type, 5, 3), labels({n}, DType::i32);
          for (int64_t i = 0; i < n; ++i)
            labels.data<int32_t>()[i] = ignore && i % 3 == 1 ? *ignore : static_cast<int32_t>(i * 7919 % classes);
          const auto op = [=](const auto& in) { return ops::softmax_cross_entropy(in[0], labels, smoothing, ignore); };
          expect_same(op, {logits}, 64, detail::concat("[", n, ", ", classes, "] ", type, " ", smoothing));
        }
  const Tensor logits = random({40, 12}, DType::f32, 6), labels = Tensor::zeros({40}, DType::i32);
  for (const int k : {1, 3, 12}) {
    const double expected = ops::top_k_correct(logits, labels, k).item();
    EXPECT_EQ(on_gpu([&] { return ops::top_k_correct(logits.to(context().device), labels, k).item(); }), expected);
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& row : std::vector<std::vector<float>>{{5, 5, 5}, {nan, 1, 0}, {1, nan, 0}, {nan, nan, nan}})
    for (const int32_t label : {0, 1, 2}) {
      const auto hit = [&] {
        return ops::top_k_correct(Tensor::of(row, {1, 3}), Tensor::of<int32_t>({label}, {1}), 2).item();
      };
      EXPECT_EQ(on_gpu(hit), hit()) << row[0] << " " << label;
    }
  EXPECT_EQ(on_gpu([&] {
              return ops::softmax_cross_entropy(Var(logits.to(context().device)), labels.to(context().device)).device();
            }),
            cuda_device(0));
}

// Gradients of gamma and beta are sums over n rows of float32 terms.
TEST_F(CudaParity, LayerNorm) {
  for (const DType type : kTypes)
    for (const auto& [n, width] : {std::pair<int64_t, int64_t>{1, 1}, {2, 7}, {33, 64}, {70, 300}, {5, 1024}}) {
      const DType parameters = compute_dtype(type);
      const Inputs in{random({n, width}, type, 7), random({width}, parameters, 8), random({width}, parameters, 9)};
      const std::string what = detail::concat("layer_norm [", n, ", ", width, "] ", type);
      const double eps = width == 1 ? 1 : 1e-5;
      expect_same([=](const auto& v) { return ops::layer_norm(v[0], v[1], v[2], eps); }, in, 64, what);
      Inputs two = in;
      two.push_back(random({n, width}, type, 10));
      expect_same([=](const auto& v) { return ops::add_layer_norm(v[0], v[3], v[1], v[2], eps); }, two, 64,
                  what + " +");
    }
}

TEST_F(CudaParity, RmsNorm) {
  for (const DType type : kTypes)
    for (const auto& [n, width] : {std::pair<int64_t, int64_t>{1, 1}, {2, 7}, {33, 64}, {70, 300}, {5, 1024}})
      expect_same([](const auto& v) { return ops::rms_norm(v[0], v[1], 1e-5); },
                  {random({n, width}, type, 7), random({width}, compute_dtype(type), 8)}, 64,
                  detail::concat("rms_norm [", n, ", ", width, "] ", type));
}

TEST_F(CudaParity, Rotary) {
  for (const DType type : kTypes)
    for (const auto& [batch, length, heads, half] :
         {std::array<int64_t, 4>{1, 1, 1, 1}, {2, 3, 2, 5}, {3, 33, 4, 32}}) {
      const DType wide = compute_dtype(type);
      const RotaryTable table{random({length + 3, half}, wide, 1), random({length + 3, half}, wide, 2)};
      const auto op = [&, length = length](const auto& in) {
        const auto there = [](const Tensor& x) { return x.to(context().device); };
        return ops::rotary(in[0], {there(table.cos), there(table.sin)}, length, 3);
      };
      expect_same(op, {random({batch * length, heads * 2 * half}, type)}, 4,
                  detail::concat("rotary ", length, " ", type));
    }
}

TEST_F(CudaParity, Embedding) {
  for (const DType type : kTypes)
    for (const int64_t width : {1, 5, 64, 300})
      for (const std::optional<int64_t> padding : {std::optional<int64_t>(), std::optional<int64_t>(2)}) {
        const Tensor table = random({11, width}, type, 11), ids({300}, DType::i32);
        for (int64_t i = 0; i < 300; ++i) ids.data<int32_t>()[i] = static_cast<int32_t>(i % 5 ? 3 : i * i % 11);
        // 240 positions with one id, whose sum is split into pieces
        expect_same([=](const auto& in) { return ops::embedding(ids, in[0], padding); }, {table}, 256,
                    detail::concat("embedding ", width, " ", type));
      }
  const Tensor ids = Tensor::of<int32_t>({4, 0, 4}, {3}), table = random({5, 3}, DType::f32);
  expect_same([=](const auto& in) { return ops::embedding(ids, in[0]); }, {table}, 0, "embedding");
  on_gpu([&] {
    const Var there(table.to(context().device), true);
    EXPECT_EQ(ops::embedding(ids.to(context().device), there).value().to(kCpu).item(0), table.item(12));
    EXPECT_THAT(error_of([&] {
                  ops::embedding(Tensor::of<int32_t>({0, 9}, {2}), there);
                }),
                ::testing::HasSubstr("embedding: id 1 is 9, the table has 5 rows"));
  });
}

TEST_F(CudaParity, Experts) {
  for (const DType type : kTypes)
    for (const auto& [n, experts, k, width] : {std::array<int64_t, 4>{1, 1, 1, 1}, {3, 9, 2, 7}, {70, 4, 3, 300}}) {
      const DType wide = compute_dtype(type);
      const Tensor p = random({n, experts}, wide, 1);
      for (int64_t i = 0; i < p.numel(); ++i) {
        if (wide == DType::f32) p.data<float>()[i] = std::exp(p.data<float>()[i]);
        else p.data<double>()[i] = std::exp(p.data<double>()[i]);
      }
      const ExpertRouting routing = route_to_experts(p, k);
      EXPECT_EQ(on_gpu([&] { return values(route_to_experts(p.to(context().device), k).slots); }),
                values(routing.slots));
      const std::string what = detail::concat(" [", n, ", ", width, "] ", type);
      expect_same([&](const auto& in) { return ops::expert_weights(in[0], routing); }, {p}, 16, "weights" + what);
      const Tensor rows = random({n * k, width}, type, 2), weights = random({n, k}, wide, 3);
      expect_same([&](const auto& in) { return ops::combine_experts(in[0], in[1], routing); }, {rows, weights}, 64,
                  "combine" + what);
      expect_same([&](const auto& in) { return ops::dispatch_to_experts(in[0], routing); }, {random({n, width}, type)},
                  8, "dispatch" + what);
      Inputs inputs{rows};
      for (int64_t e = 0; e < experts; ++e) inputs.push_back(random({5, width}, wide, 4 + uint64_t(e)));
      expect_same(
          [&](const auto& in) {
            return ops::expert_linear(in[0], {in.begin() + 1, in.end()}, routing);
          },
          inputs, 64, "linear" + what);
      expect_same([&](const auto& in) { return ops::load_balancing_loss({in[0]}, {routing}); }, {p}, 64, "loss" + what);
    }
}

TEST_F(CudaParity, Column) {
  for (const DType type : kTypes)
    expect_same([](const auto& in) { return ops::add(ops::column(in[0], 1), ops::column(in[0], 2)); },
                {random({700, 3}, type)}, 0);
}

TEST_F(CudaParity, Pooling) {
  for (const DType type : kTypes)
    for (const auto& [kernel, stride, padding] : {std::tuple{2, 2, 0}, {3, 2, 1}, {3, 1, 1}, {3, 3, 0}, {1, 1, 0}}) {
      const Tensor x = random({2, 9, 7, 5}, type, 12);
      const Pool2dOptions options{kernel, stride, padding};
      const std::string what = detail::concat(type, " ", kernel, " ", stride);
      expect_same([=](const auto& in) { return ops::max_pool2d(in[0], options); }, {x}, 0, "max " + what);
      expect_same([=](const auto& in) { return ops::avg_pool2d(in[0], options); }, {x}, 8, "average " + what);
    }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::of<float>({1, 2, nan, 2, 2, nan, 0, 0, 7}, {1, 3, 3, 1});
  expect_same([](const auto& in) { return ops::max_pool2d(in[0], {2, 1, 0}); }, {x}, 0, "NaN");
  for (const DType type : kTypes)
    expect_same([](const auto& in) { return ops::global_avg_pool(in[0]); }, {random({3, 7, 5, 6}, type)}, 0,
                detail::concat("global ", type));
}

TEST_F(CudaParity, AdaptivePooling) {
  for (const DType type : kTypes)
    for (const auto& [h, w, out_h, out_w] : {std::tuple{6, 4, 3, 2}, {7, 5, 3, 4}, {1, 1, 7, 7}, {9, 2, 7, 2}}) {
      const auto op = [out_h = out_h, out_w = out_w](const auto& in) {
        return ops::adaptive_avg_pool2d(in[0], out_h, out_w);
      };
      expect_same(op, {random({2, h, w, 5}, type)}, 0, detail::concat("adaptive ", type, " ", h, " to ", out_h));
    }
}

TEST_F(CudaParity, Transpose) {
  for (const DType type : kTypes)
    for (const Shape& shape : {Shape{1, 1, 1}, Shape{3, 49, 20}, Shape{2, 1, 7}, Shape{5, 300, 33}})
      expect_same([](const auto& in) { return ops::transpose(in[0]); }, {random(shape, type)}, 0,
                  detail::concat("transpose ", type, " ", shape));
}

// Gradients of token and positions are sums over the batch in float64.
TEST_F(CudaParity, PrependToken) {
  for (const DType type : kTypes)
    for (const auto& [n, length, width] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1}, {2, 4, 3}, {9, 50, 64}}) {
      const DType parameters = compute_dtype(type);
      expect_same([](const auto& in) { return ops::prepend_token(in[0], in[1], in[2]); },
                  {random({n, length, width}, type), random({1, 1, width}, parameters, 2),
                   random({1, length + 1, width}, parameters, 3)},
                  8, detail::concat("prepend_token ", type, " ", n));
    }
}

TEST_F(CudaParity, SelfAttention) {
  for (const DType type : {DType::f32, DType::f64})
    for (const auto& [batch, length, heads, width] : {std::tuple{1, 1, 1, 1}, {2, 5, 3, 8}, {3, 65, 2, 16}}) {
      const auto op = [batch = batch, heads = heads](const auto& in) {
        return ops::self_attention(in[0], batch, heads, {.dropout = 0.2, .key = {7, 3, 2, 1}});
      };
      expect_same(op, {random({batch * length, 3 * heads * width}, type)}, 256,
                  detail::concat("self_attention ", type, " ", length));
    }
}

TEST_F(CudaParity, SubsamplePad) {
  for (const DType type : kTypes)
    for (const int stride : {1, 2, 3})
      expect_same([=](const auto& in) { return ops::subsample_pad(in[0], stride, 7); }, {random({2, 5, 6, 3}, type)}, 0,
                  detail::concat("subsample_pad ", stride, " ", type));
}

// Sums over k products in another order. bfloat16 rounds the result, and the CPU may round parameters differently.
TEST_F(CudaParity, Matmul) {
  for (const DType type : kTypes)
    for (const bool trans_a : {false, true})
      for (const bool trans_b : {false, true})
        for (const auto& [m, n, k] :
             {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1}, {5, 3, 7}, {16, 8, 32}, {33, 20, 65}})
          for (const int64_t batch : {0, 3}) {
            Shape a = trans_a ? Shape{k, m} : Shape{m, k}, b = trans_b ? Shape{n, k} : Shape{k, n};
            if (batch > 0) a = {batch, a[0], a[1]}, b = {batch, b[0], b[1]};
            expect_same([=](const auto& in) { return ops::matmul(in[0], in[1], trans_a, trans_b); },
                        {random(a, type, 13), random(b, type, 14)}, type == DType::bf16 ? 4 : 64,
                        detail::concat("matmul ", a, " ", b, " ", type));
          }
}

TEST_F(CudaParity, Linear) {
  for (const DType type : kTypes)
    for (const auto& [n, in, out] :
         {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1}, {3, 5, 7}, {13, 9, 2}, {40, 64, 16}}) {
      const DType parameters = compute_dtype(type);
      const Tensor x = random({n, in}, type, 15), w = random({out, in}, parameters, 16),
                   bias = random({out}, parameters, 17);
      const std::string what = detail::concat("linear [", n, ", ", in, "] to ", out, " ", type);
      // float32 gradients of bfloat16 values: products of 8-bit significands are exact, and their sums are float32
      expect_same([](const auto& v) { return ops::linear(v[0], v[1], v[2]); }, {x, w, bias}, 64, what);
      expect_same([](const auto& v) { return ops::linear(v[0], v[1]); }, {x, w}, 64, what + " without bias");
      const auto constant = [](const Tensor& t) { return Var(t.to(context().device)); };
      expect_same([=](const auto& v) { return ops::linear(constant(x), constant(w), v[0]); }, {bias}, 64,
                  what + ", the bias alone");
      expect_same([=](const auto& v) { return ops::linear(constant(x), v[0], constant(bias)); }, {w}, 64,
                  what + ", the weight alone");
    }
}

// The GPU adds a product to the other gradients of its input before it rounds the sum; the CPU rounds both.
TEST_F(CudaParity, LinearWithASharedInput) {
  for (const DType type : kTypes) {
    const DType parameters = compute_dtype(type);
    const auto op = [](const auto& v) {
      const Var h = ops::scale(v[0], 0.5);
      return ops::add(ops::add(ops::linear(h, v[1]), ops::linear(h, v[2])), h);
    };
    expect_same(op, {random({9, 8}, type, 1), random({8, 8}, parameters, 2), random({8, 8}, parameters, 3)},
                type == DType::bf16 ? 4 : 64, detail::concat("linear with a shared input ", type));
  }
}

// Parameters are views of flat buckets and begin at arbitrary addresses. y, h and c are used one at a time, so that one
// gradient reaches the layer.
TEST_F(CudaParity, Lstm) {
  for (const DType type : kTypes)
    for (const auto& [time, batch, input, width] :
         {std::tuple<int64_t, int64_t, int64_t, int64_t>{1, 1, 1, 1}, {3, 2, 5, 7}, {4, 3, 8, 16}, {2, 5, 3, 300}}) {
      const DType wide = compute_dtype(type);
      const Inputs inputs{random({time, batch, input}, type, 1),    random({batch, width}, type, 2),
                          random({batch, width}, wide, 3),          random({4 * width, input}, wide, 4, 0.3),
                          random({4 * width, width}, wide, 5, 0.1), random({4 * width}, wide, 6, 0.3),
                          random({4 * width}, wide, 7, 0.3)};
      const std::string what = detail::concat("lstm ", time, " ", batch, " ", input, " ", width, " ", type);
      const auto run = [](const auto& in) { return ops::lstm(in[0], {in[1], in[2]}, {in[3], in[4], in[5], in[6]}); };
      // Products of the steps follow one another, so that roundings add up. For bfloat16, the GPU rounds the weights
      // and the CPU does not.
      const bool half = type == DType::bf16;
      const double units = half ? 6 : 256;
      expect_same([=](const auto& in) { return run(in).y; }, inputs, units, what, half);
      expect_same([=](const auto& in) { return run(in).state.h; }, inputs, units, what + ", h", half);
      expect_same([=](const auto& in) { return run(in).state.c; }, inputs, units, what + ", c", half);
    }
}

TEST_F(CudaParity, JoinedLinear) {
  on_gpu([] {
    for (const DType type : kTypes)
      for (const bool bias : {false, true})
        for (const std::vector<int64_t>& outs : {std::vector<int64_t>{64, 64, 64}, {128, 64, 10}, {5, 3, 9, 1}, {7}})
          test::expect_joined_linear_equals_layers(type, 33, 21, outs, bias);
  });
}

TEST_F(CudaParity, LinearAcceptsUnalignedParameters) {
  const Tensor flat = random({200}, DType::f32, 18), x = random({6, 7}, DType::f32, 19);
  const auto op = [](const auto& in) {
    return ops::linear(in[0], Var(in[1].value().range(1, 35).view({5, 7})), Var(in[1].value().range(37, 5)));
  };
  compare(on_gpu([&] {
            return op(std::vector{Var(x.to(context().device)), Var(flat.to(context().device))}).value().to(kCpu);
          }),
          op(std::vector{Var(x), Var(flat)}).value(), 64, "linear off alignment");
  const auto gradients = [&] {
    const Var w(flat.to(context().device).range(1, 35).view({5, 7}).clone(), true);
    const Tensor all = Tensor::full({40}, 3);
    Leaf(w).rebind(w.value(), all.range(3, 35).view({5, 7}));
    const Var y = ops::linear(Var(x.to(context().device)), w);
    const Tensor dy = Tensor::full({6, 5}, 0.5);
    test::backward_from(y, dy);
    return all.to(kCpu);
  };
  compare(on_gpu(gradients), gradients(), 64, "an unaligned gradient and its neighbors");
}

TEST_F(CudaParity, GradientsAccumulateOnTheGpu) {
  on_gpu([&] {
    const Var x(Tensor::full({1000}, 2), true);
    for (int i = 0; i < 3; ++i)
      test::backward_from(x, [&] { return Tensor::full({1000}, 0.5); });
    EXPECT_EQ(x.grad().device(), cuda_device(0));
    EXPECT_EQ(x.grad().item(999), 1.5);
  });
}

}  // namespace cuda_parity_test
}  // namespace godwit
