#include "engine/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "engine/context.h"
#include "tests/support.h"

namespace godwit {
namespace tensor_test {

using testing::HasSubstr;

Tensor ramp(Shape shape) {
  Tensor x(shape);
  std::iota(x.data<float>(), x.data<float>() + x.numel(), 0.f);
  return x;
}

TEST(Tensor, ConstructsAndReads) {
  const Tensor undefined;
  EXPECT_FALSE(undefined.defined());
  EXPECT_EQ(Tensor::zeros({2, 3}).to_vector<float>(), std::vector<float>(6, 0));
  EXPECT_EQ(Tensor::full({3}, -2, DType::i64).to_vector<int64_t>(), (std::vector<int64_t>{-2, -2, -2}));
  EXPECT_EQ(Tensor::full({}, 0.1, DType::f64).item(), 0.1);
  EXPECT_EQ(Tensor::of(std::vector<uint8_t>{1, 255}, {2}).item(1), 255);
  const Tensor empty({4, 0});
  EXPECT_TRUE(empty.defined());
  EXPECT_EQ(empty.numel(), 0);
  EXPECT_TRUE(empty.to_vector<float>().empty());
}

TEST(Tensor, IsUndefinedAfterItWasMoved) {
  Tensor x = Tensor::full({2, 3}, 1);
  const float* values = x.data<float>();
  Tensor y = std::move(x);
  EXPECT_EQ(y.data<float>(), values);
  EXPECT_EQ(y.shape(), Shape({2, 3}));
  EXPECT_FALSE(x.defined());
  EXPECT_EQ(x.numel(), 0);
  EXPECT_EQ(x.shape(), Shape());
  x.fill(2);  // no element
  x = std::move(y);
  EXPECT_EQ(x.item(5), 1);
  EXPECT_FALSE(y.defined());
}

TEST(Tensor, SizesOfAllTypes) {
  for (auto [dtype, bytes] : {std::pair{DType::f64, 8},
                              {DType::i64, 8},
                              {DType::f32, 4},
                              {DType::i32, 4},
                              {DType::u32, 4},
                              {DType::bf16, 2},
                              {DType::f16, 2},
                              {DType::u8, 1}}) {
    EXPECT_EQ(Tensor({3, 5}, dtype).bytes(), 15 * bytes) << dtype;
    EXPECT_EQ(Tensor::zeros({3, 5}, dtype).dtype(), dtype);
  }
}

TEST(Tensor, ViewsShareMemory) {
  const Tensor x = ramp({4, 6});
  const Tensor flat = x.view({24}), part = x.range(7, 5), rows = x.rows(1, 2);
  EXPECT_EQ(part.shape(), (Shape{5}));
  EXPECT_EQ(rows.shape(), (Shape{2, 6}));
  EXPECT_EQ(rows.item(1), 7);
  part.data<float>()[0] = -1;
  EXPECT_EQ(x.item(7), -1);
  EXPECT_EQ(flat.item(7), -1);
  EXPECT_EQ(rows.item(1), -1);
  EXPECT_TRUE(flat.same_memory(x));
  EXPECT_FALSE(part.same_memory(x));
  EXPECT_TRUE(x.range(0, 1).same_memory(x));
  EXPECT_EQ(part.range(2, 2).item(), 9) << "nested range";
  EXPECT_EQ(rows.rows(1, 1).item(), 12);
  EXPECT_EQ(x.rows(4, 0).shape(), (Shape{0, 6}));
  EXPECT_EQ(Tensor({0, 3}).rows(0, 0).shape(), (Shape{0, 3}));
  EXPECT_EQ(x.range(24, 0).numel(), 0);
}

TEST(Tensor, RefusesViewsOutOfRange) {
  const Tensor x = ramp({4, 6});
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(error_of([&] { x.view({5, 5}); }), HasSubstr("[4, 6] has 24 elements, [5, 5] has 25"));
  for (auto [begin, count] : {std::pair<int64_t, int64_t>{-1, 1}, {0, 25}, {24, 1}, {3, -1}, {most, most}, {1, most}})
    EXPECT_THAT(error_of([&, begin = begin, count = count] { x.range(begin, count); }), HasSubstr("range: "))
        << begin << " " << count;
  for (auto [begin, count] : {std::pair<int64_t, int64_t>{-1, 1}, {0, 5}, {4, 1}, {3, -1}, {1, most}})
    EXPECT_THAT(error_of([&, begin = begin, count = count] { x.rows(begin, count); }), HasSubstr("rows: "))
        << begin << " " << count;
  EXPECT_THROW(Tensor(Shape{}).rows(0, 1), Error);
  EXPECT_THAT(error_of([&] { x.item(24); }), HasSubstr("element 24 of 24"));
  EXPECT_THAT(error_of([&] { x.dim(-1); }), HasSubstr("dim: [4, 6] has no dimension -1"));
  EXPECT_THAT(error_of([&] { x.dim(2); }), HasSubstr("dim: [4, 6] has no dimension 2"));
  EXPECT_THAT(error_of([&] { x.data<int32_t>(); }), HasSubstr("has type float32, requested as int32"));
  EXPECT_THAT(error_of([&] { Tensor::of(std::vector<float>{1, 2}, {3}); }), HasSubstr("2 values for shape [3]"));
}

TEST(Tensor, RefusesImpossibleSizes) {
  EXPECT_THAT(error_of([] { Tensor({int64_t{1} << 62}, DType::f64); }), HasSubstr("2^63 - 1 bytes"));
  EXPECT_THAT(error_of([] { Tensor({int64_t{1} << 50}); }), HasSubstr("memory"));
}

TEST(Tensor, ClonesAndCopies) {
  const Tensor x = ramp({3, 2}), y = x.clone();
  EXPECT_FALSE(y.same_memory(x));
  EXPECT_EQ(y.shape(), x.shape());
  EXPECT_EQ(y.to_vector<float>(), x.to_vector<float>());
  y.fill(7);
  EXPECT_EQ(x.item(5), 5);
  y.view({6}).copy_from(x);
  EXPECT_EQ(y.item(5), 5);
  y.copy_from(y);
  EXPECT_THAT(error_of([&] { y.copy_from(ramp({5})); }), HasSubstr("[3, 2] from float32 [5]"));
  EXPECT_THAT(error_of([&] { y.copy_from(Tensor({3, 2}, DType::i32)); }), HasSubstr("int32"));
}

// Large enough to be split over several threads.
TEST(Tensor, ZeroesAndCopiesWithThreads) {
  ContextGuard guard({.threads = 3});
  const int64_t n = 3'000'001;
  const Tensor x = ramp({n}), y = x.clone();
  EXPECT_TRUE(std::ranges::equal(x.span<float>(), y.span<float>()));
  y.range(1, n - 2).zero();
  EXPECT_EQ(std::count(y.span<float>().begin(), y.span<float>().end(), 0.f), n - 1);
  EXPECT_EQ(y.item(n - 1), x.item(n - 1));
}

TEST(Tensor, ConvertsBetweenTypes) {
  const Tensor x = Tensor::of(std::vector<float>{0, 1.75f, 100}, {3, 1});
  EXPECT_EQ(x.to(DType::f64).to_vector<double>(), (std::vector<double>{0, 1.75, 100}));
  EXPECT_EQ(x.to(DType::u8).to_vector<uint8_t>(), (std::vector<uint8_t>{0, 1, 100}));
  EXPECT_EQ(x.to(DType::i32).shape(), x.shape());
  EXPECT_FALSE(x.to(DType::f32).same_memory(x));
  EXPECT_EQ(Tensor::full({1}, -3, DType::i64).to(DType::f32).item(), -3);
}

TEST(Tensor, ReportsWhetherItsBufferIsShared) {
  Tensor x({2});
  EXPECT_FALSE(x.shared());
  Tensor y = x.range(0, 1);
  EXPECT_TRUE(x.shared());
  y = Tensor();
  EXPECT_FALSE(x.shared());
}

TEST(Tensor, CheckLikeComparesShapeAndType) {
  const Tensor x({2, 3});
  EXPECT_NO_THROW(check_like(x, Tensor({2, 3}), "add", "x"));
  EXPECT_EQ(error_of([&] {
              check_like(x, Tensor({3, 2}), "add", "x");
            }),
            "add: x is float32 [2, 3], expected float32 [3, 2]");
  EXPECT_EQ(error_of([&] {
              check_like(x, Tensor({2, 3}, DType::f64), "add", "x");
            }),
            "add: x is float32 [2, 3], expected float64 [2, 3]");
}

TEST(Tensor, ViewsOverForeignMemoryAreBoundsChecked) {
  alignas(8) static std::byte memory[24];
  const Buffer buffer(std::shared_ptr<std::byte>(memory, [](std::byte*) {}), 24);
  const Tensor x = Tensor::over(buffer, 4, {2, 2}, DType::f32);
  x.fill(3);
  EXPECT_EQ(x.raw(), memory + 4);
  EXPECT_EQ(x.bytes(), 16);
  EXPECT_EQ(Tensor::over(buffer, 8, {}, DType::f64).bytes(), 8);
  EXPECT_EQ(Tensor::over(buffer, 24, {0}, DType::f32).numel(), 0);
  EXPECT_THROW(Tensor::over(buffer, 12, {2, 2}, DType::f32), Error) << "beyond the end";
  EXPECT_THROW(Tensor::over(buffer, -4, {1}, DType::f32), Error);
  EXPECT_THROW(Tensor::over(buffer, 4, {1}, DType::f64), Error) << "not aligned";
}

TEST(Tensor, OutOfMemoryErrorsNameTheShape) {
  const std::string error = error_of([] { Tensor({1 << 20, 1 << 28}); });
  EXPECT_THAT(error,
              HasSubstr("tensor [1048576, 268435456] of float32: out of memory: 1125899906842624 bytes requested"));
}

// Views share the memory that is attached to their tensor, and lose it when the tensor is detached.
TEST(Tensor, DetachedTensorsUseAttachedMemory) {
  const Tensor x = Tensor::detached({4, 2}, DType::f32), row = x.rows(1, 1);
  EXPECT_FALSE(x.attached());
  EXPECT_NE(error_of([&] { row.zero(); }).find("has no memory now"), std::string::npos);
  const int64_t before = context().pool->stats().bytes_in_use;
  {
    const Tensor memory = Tensor::full({8}, 3);
    x.attach(memory);
  }
  EXPECT_EQ(context().pool->stats().bytes_in_use, before + 32);
  EXPECT_EQ(row.item(0), 3);
  row.fill(5);
  EXPECT_EQ(x.item(2), 5);
  EXPECT_EQ(x.item(1), 3);
  EXPECT_NE(error_of([&] { x.attach(Tensor({7})); }).find("expected two whole tensors of one type and size"),
            std::string::npos);
  x.detach();
  EXPECT_EQ(context().pool->stats().bytes_in_use, before);
  EXPECT_NE(error_of([&] { (void)x.item(2); }).find("has no memory now"), std::string::npos);
  EXPECT_NE(error_of([&] { Tensor({4}).detach(); }).find("only attached memory"), std::string::npos);
}

}  // namespace tensor_test
}  // namespace godwit
