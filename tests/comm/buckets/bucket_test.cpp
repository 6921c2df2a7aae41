#include "comm/buckets/bucket.h"

#include <gtest/gtest.h>

#include "tests/comm/table.h"

namespace godwit {
namespace bucket_test {

using test::random_row;
using test::random_tensor;

Parameter parameter(const std::string& name, Shape shape, int seed, bool decay = true) {
  return {name, Var(random_tensor<float>(3, seed, shape.numel()).view(shape), true), decay};
}

std::vector<Parameter> model() {
  return {parameter("conv1.weight", {8, 3, 3, 3}, 0),
          parameter("bn1.weight", {8}, 1, false),
          parameter("bn1.bias", {8}, 2, false),
          parameter("fc.weight", {10, 33}, 3),
          parameter("fc.bias", {10}, 4),
          parameter("scale", {}, 5)};
}

TEST(Bucket, UsesReverseOrderWithoutGapsAndPads) {
  const std::vector<Parameter> parameters = model();
  const Buckets buckets(parameters, {.first_bytes = 100, .bytes = 1000, .alignment = 24});
  std::vector<std::string> names;
  int64_t global = 0;
  for (const Bucket& bucket : buckets) {
    EXPECT_EQ(bucket.index, static_cast<int>(&bucket - &buckets[0]));
    EXPECT_EQ(bucket.begin, global);
    EXPECT_EQ(bucket.padded_numel(), (bucket.numel + 23) / 24 * 24);
    EXPECT_EQ(bucket.grad.numel(), bucket.padded_numel());
    int64_t offset = 0;
    for (const Slot& slot : bucket.slots) {
      EXPECT_EQ(slot.offset, offset);
      EXPECT_TRUE(slot.var.value().same_memory(bucket.param.range(offset, slot.numel)));
      offset += slot.numel;
      names.push_back(slot.name);
    }
    EXPECT_EQ(bucket.numel, offset);
    for (int64_t i = offset; i < bucket.padded_numel(); ++i) EXPECT_EQ(bucket.param.item(i), 0) << "padding must be 0";
    global += offset;
  }
  EXPECT_EQ(buckets.numel(), global);
  EXPECT_EQ(names,
            (std::vector<std::string>{"scale", "fc.bias", "fc.weight", "bn1.bias", "bn1.weight", "conv1.weight"}));
}

TEST(Bucket, SizeLimitsSplitBetweenTensorsOnly) {
  // Bytes from the last parameter: 4, 40 | 1320 exceeds the limit and gets its own bucket | 32, 32, 864.
  const Buckets buckets(model(), {.first_bytes = 100, .bytes = 1000, .alignment = 1});
  ASSERT_EQ(buckets.size(), 3);
  EXPECT_EQ(buckets[0].numel, 11);
  EXPECT_EQ(buckets[1].numel, 330);
  EXPECT_EQ(buckets[2].numel, 232);
  const Buckets single(model(), {.first_bytes = 1 << 20, .bytes = 1000, .alignment = 1});
  EXPECT_EQ(single.size(), 1);
  const Buckets each(model(), {.first_bytes = 1, .bytes = 1, .alignment = 1});
  EXPECT_EQ(each.size(), 6);
}

TEST(Bucket, KeepsValuesAndClearsGradients) {
  const std::vector<Parameter> parameters = model();
  parameters[3].var.gradient().add(Tensor::full({10, 33}, 1));
  const Buckets buckets(parameters, {});
  for (size_t i = 0; i < parameters.size(); ++i) {
    const int64_t n = parameters[i].var.value().numel();
    EXPECT_EQ(parameters[i].var.value().to_vector<float>(), random_row<float>(3, static_cast<int>(i), n));
    EXPECT_FALSE(parameters[i].var.has_grad());
    EXPECT_EQ(parameters[i].var.grad().to_vector<float>(), std::vector<float>(static_cast<size_t>(n), 0.0f));
  }
}

TEST(Bucket, TiedVarHasOneSlotUnderItsFirstName) {
  std::vector<Parameter> parameters = model();
  parameters.push_back({"decoder.weight", parameters[3].var, true});
  const Buckets buckets(parameters, {});
  EXPECT_EQ(buckets.numel(), 573);
  for (const Slot& slot : buckets[0].slots) EXPECT_NE(slot.name, "decoder.weight");
}

TEST(Bucket, HashesDoNotDependOnBucketSizes) {
  const Buckets small(model(), {.first_bytes = 8, .bytes = 64, .alignment = 32});
  const Buckets large(model(), {});
  EXPECT_EQ(small.layout_hash(), large.layout_hash());
  EXPECT_EQ(small.value_hash(), large.value_hash());
}

TEST(Bucket, LayoutHashDependsOnNamesShapesAndOrder) {
  const uint64_t hash = Buckets(model(), {}).layout_hash();
  auto changed = [&](const std::function<void(std::vector<Parameter>&)>& change) {
    std::vector<Parameter> parameters = model();
    change(parameters);
    return Buckets(parameters, {}).layout_hash() != hash;
  };
  EXPECT_FALSE(changed([](auto&) {}));
  EXPECT_TRUE(changed([](auto& p) { p[1].name = "bn1.gamma"; }));
  EXPECT_TRUE(changed([](auto& p) { std::swap(p[1], p[2]); }));
  EXPECT_TRUE(changed([](auto& p) { p[3] = parameter("fc.weight", {33, 10}, 3); }));
  EXPECT_TRUE(changed([](auto& p) { p[3] = parameter("fc.weight", {10, 33, 1}, 3); }));
  EXPECT_TRUE(changed([](auto& p) { p.pop_back(); }));
  EXPECT_TRUE(changed([](auto& p) { p[1].decay = !p[1].decay; }));
  EXPECT_TRUE(changed([](auto& p) { p[0].name = "conv1.weightb", p[1].name = "n1.weight"; }));
}

TEST(Bucket, ValueHashDependsOnEveryElementAndTheSignOfZero) {
  Buckets buckets(model(), {.first_bytes = 100, .bytes = 1000, .alignment = 32});
  const uint64_t hash = buckets.value_hash();
  for (Bucket& bucket : buckets)
    for (int64_t i = 0; i < bucket.numel; ++i) {
      float& value = bucket.param.data<float>()[i];
      const float kept = value;
      value = -value;
      ASSERT_NE(buckets.value_hash(), hash) << "bucket " << bucket.index << " element " << i;
      value = kept;
    }
  EXPECT_EQ(buckets.value_hash(), hash);
  buckets[0].param.data<float>()[buckets[0].numel] = 5;
  EXPECT_EQ(buckets.value_hash(), hash) << "the hash must not include padding";
}

TEST(Bucket, Float64AndEmptyTensors) {
  const Buckets buckets({{"a", Var(Tensor::full({3}, 2, DType::f64), true), true},
                         {"empty", Var(Tensor({0, 4}, DType::f64), true), true},
                         {"b", Var(Tensor::full({2}, -0.0, DType::f64), true), true}},
                        {.first_bytes = 16, .bytes = 16, .alignment = 4});
  EXPECT_EQ(buckets.numel(), 5);
  EXPECT_EQ(buckets[0].param.dtype(), DType::f64);
  EXPECT_NE(buckets.value_hash(), 0u);
  const Buckets nothing({{"empty", Var(Tensor({0}), true), true}}, {});
  EXPECT_EQ(nothing[0].padded_numel(), 0);
}

TEST(Bucket, LayoutHashDependsOnTheType) {
  const auto hash = [](DType type) { return Buckets({{"a", Var(Tensor::zeros({3}, type), true)}}, {}).layout_hash(); };
  EXPECT_NE(hash(DType::f32), hash(DType::f64));
}

// The pool returns the memory of the released gradient, whose padding is not 0.
TEST(Bucket, GradientsOnDemandHavePaddingOfZeros) {
  Buckets buckets({{"a", Var(Tensor::zeros({3}), true)}}, {.alignment = 32, .on_demand_gradients = true});
  for (int pass = 0; pass < 2; ++pass) {
    buckets.acquire_gradient(buckets[0]);
    for (int64_t i = 3; i < 32; ++i) EXPECT_EQ(buckets[0].grad.item(i), 0) << i;
    buckets[0].grad.fill(7);
    buckets.release_gradient(buckets[0]);
  }
}

TEST(Bucket, DecayRangesMergeNeighbors) {
  const Buckets buckets(model(), {});
  const std::vector<DecayRange> ranges = decay_ranges(buckets[0]);
  ASSERT_EQ(ranges.size(), 3u);  // scale, fc | bn1 | conv1
  EXPECT_EQ(ranges[0].begin, 0);
  EXPECT_EQ(ranges[0].end, 341);
  EXPECT_TRUE(ranges[0].decay);
  EXPECT_EQ(ranges[1].end, 357);
  EXPECT_FALSE(ranges[1].decay);
  EXPECT_EQ(ranges[2].end, 573);
}

TEST(Bucket, RefusesInvalidParameters) {
  EXPECT_THROW(Buckets({}, {}), Error);
  EXPECT_THROW(Buckets({parameter("a", {2}, 0), parameter("a", {2}, 1)}, {}), Error);
  EXPECT_THROW(Buckets({{"a", Var(Tensor::zeros({2})), true}}, {}), Error);
  EXPECT_THROW(Buckets({{"a", Var(), true}}, {}), Error);
  EXPECT_THROW(Buckets({{"a", Var(Tensor::zeros({2}, DType::i32), true), true}}, {}), Error);
  EXPECT_THROW(Buckets({parameter("a", {2}, 0), {"b", Var(Tensor::zeros({2}, DType::f64), true), true}}, {}), Error);
  EXPECT_THROW(Buckets(model(), {.first_bytes = 0}), Error);
  EXPECT_THROW(Buckets(model(), {.alignment = 0}), Error);
}

}  // namespace bucket_test
}  // namespace godwit
