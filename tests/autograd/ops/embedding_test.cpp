#include "autograd/ops/embedding.h"

#include "autograd/ops/add.h"
#include "autograd/ops/linear.h"
#include "tests/autograd/gradient_check.h"
#include "tests/support.h"

namespace godwit {
namespace embedding_test {

using test::check_gradients, test::random_tensor, test::values, test::with_threads;

Tensor ids_of(const std::vector<int32_t>& ids) { return Tensor::of(ids, {static_cast<int64_t>(ids.size())}); }

Tensor random_ids(int64_t n, uint32_t rows) {
  RandomStream random(9, Purpose::test);
  Tensor ids({n}, DType::i32);
  for (int32_t& id : ids.span<int32_t>()) id = static_cast<int32_t>(random.below(rows));
  return ids;
}

TEST(Embedding, Gradients) {
  for (const auto& [rows, width] : {std::pair{1, 1}, {5, 3}, {4, 33}})
    for (const int64_t n : {1, 2, 9})
      check_gradients([&, rows = static_cast<uint32_t>(rows)](
                          const auto& in) { return ops::embedding(random_ids(n, rows), in[0]); },
                      {random_tensor({rows, width})});
}

TEST(Embedding, GradientsOfATableWithOtherUses) {
  const std::vector<Tensor> table{random_tensor({4, 3})};
  const Tensor a = ids_of({1, 3, 1}), b = ids_of({0, 1, 2});
  // In this order of the operations, the sums of two backward passes are exact. The order of arguments is unspecified.
  check_gradients(
      [&](const auto& in) {
        const Var of_b = ops::embedding(b, in[0]);
        return ops::add(ops::embedding(a, in[0]), of_b);
      },
      table);
  // the decoder of a masked language model uses the same weights as a matrix
  check_gradients([&](const auto& in) { return ops::linear(ops::embedding(a, in[0]), in[0]); }, table);
  // rows of activations, which are also used directly
  check_gradients(
      [&](const auto& in) {
        const Var h = ops::add(in[0], in[0]);
        return ops::add(ops::embedding(ids_of({3, 3, 0, 1}), h), h);
      },
      table);
}

TEST(Embedding, PicksRowsExactly) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const Tensor table = random_tensor({50, 17}).to(dtype), ids = random_ids(333, 50);
    const Tensor y = ops::embedding(ids, Var(table)).value();
    ASSERT_EQ(y.shape(), (Shape{333, 17}));
    ASSERT_EQ(y.dtype(), dtype);
    for (int64_t i = 0; i < y.numel(); ++i)
      ASSERT_EQ(y.item(i), table.item(ids.data<int32_t>()[i / 17] * 17 + i % 17)) << i;
  }
  EXPECT_EQ(ops::embedding(ids_of({}), Var(Tensor::zeros({3, 4}))).shape(), (Shape{0, 4}));
}

// Sums run in the order of positions, so a plain loop gives the same bits.
TEST(Embedding, RepeatedIdsAreSummedInOrderOnAnyThreadCount) {
  for (const int64_t width : {1, 16, 100}) {
    const Tensor ids = random_ids(500, 3), dy = random_tensor({500, width}, DType::f32, 2);
    std::vector<float> expected(static_cast<size_t>(4 * width));
    for (int64_t i = 0; i < 500; ++i)
      for (int64_t c = 0; c < width; ++c)
        expected[static_cast<size_t>(ids.data<int32_t>()[i] * width + c)] += dy.data<float>()[i * width + c];
    for (const int threads : {1, 2, 3, 8})
      with_threads(threads, [&] {
        const Tensor sum = Tensor::zeros({4, width});
        embedding_backward(Cpu{}, ids, dy, sum);
        EXPECT_EQ(sum.to_vector<float>(), expected) << threads << " threads, width " << width;
      });
  }
}

TEST(Embedding, Bfloat16SumsInFloat32AndRoundsOnce) {
  const Tensor ids = random_ids(300, 2), dy = random_tensor({300, 5}, DType::f32, 2).to(DType::bf16);
  Var table(Tensor::zeros({2, 5}, DType::bf16), true);
  const Var y = ops::embedding(ids, table);
  test::backward_from(y, dy);
  const Tensor sum = Tensor::zeros({2, 5});
  embedding_backward(Cpu{}, ids, dy.to(DType::f32), sum);
  EXPECT_EQ(values(table.grad()), values(sum.to(DType::bf16)));
}

TEST(Embedding, PaddingGetsNoGradient) {
  const Var table(random_tensor({4, 3}), true);
  const Tensor ids = ids_of({2, 1, 2, 0});
  const auto gradient = [&](std::optional<int64_t> padding) {
    table.clear_grad();
    const Var y = ops::embedding(ids, table, padding);
    EXPECT_EQ(values(y.value()), values(ops::embedding(ids, table).value()));
    test::backward_from(y, [&] { return Tensor::full({4, 3}, 1, DType::f64); });
    return values(table.grad());
  };
  EXPECT_EQ(gradient(std::nullopt), (std::vector<double>{1, 1, 1, 1, 1, 1, 2, 2, 2, 0, 0, 0}));
  EXPECT_EQ(gradient(2), (std::vector<double>{1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(gradient(3), gradient(std::nullopt));
  EXPECT_THROW(ops::embedding(ids, table, 4), Error);
  EXPECT_THROW(ops::embedding(ids, table, -1), Error);
}

TEST(Embedding, NamesInvalidArguments) {
  const Var table(Tensor::zeros({10, 4}));
  auto message = [&](const Tensor& ids, const Var& t) { return error_of([&] { ops::embedding(ids, t); }); };
  EXPECT_EQ(message(ids_of({1, 2, 10}), table), "embedding: id 2 is 10, the table has 10 rows");
  EXPECT_EQ(message(ids_of({-1}), table), "embedding: id 0 is -1, the table has 10 rows");
  EXPECT_EQ(message(Tensor::zeros({2}, DType::i64), table), "embedding: ids must be int32 [n], got int64 [2]");
  EXPECT_EQ(message(Tensor::zeros({2, 2}, DType::i32), table), "embedding: ids must be int32 [n], got int32 [2, 2]");
  EXPECT_EQ(message(ids_of({1}), Var(Tensor::zeros({10}))), "embedding: the table must be [rows, width], got [10]");
  EXPECT_THROW(ops::embedding(ids_of({1}), Var(Tensor::zeros({3, 3}, DType::i32))), Error);
}

}  // namespace embedding_test
}  // namespace godwit
