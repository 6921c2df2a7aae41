#include "models/generate.h"

#include <gmock/gmock.h>

#include <map>

#include "engine/context.h"
#include "tests/autograd/gradient_check.h"
#include "tests/models/gpt2_golden.h"
#include "tests/support.h"

namespace godwit {
namespace generate_test {

static_assert(!std::is_copy_constructible_v<KeyValueCache>, "a copy would share the memory");

using ::testing::HasSubstr;

constexpr SampleOptions kGreedy{.temperature = 0};

TEST(Generate, GreedyEqualsTransformers) {
  gpt2_golden::Golden golden(DType::f32);
  const Gpt2 model(golden.config);
  test::fill_by_formula(model);
  for (const auto& text : golden.file["greedy"]) {
    const auto prompt = text["prompt"].get<std::vector<int32_t>>();
    const auto expected = text["continuation"].get<std::vector<int32_t>>();
    EXPECT_EQ(generate(model, prompt, std::ssize(expected), golden.config.vocab_size, kGreedy), expected);
  }
}

// The cache sums in the same order as the whole text, except for the vector products of one row.
TEST(Generate, CacheEqualsTheWholeText) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    gpt2_golden::Golden golden(dtype);
    const Gpt2 model(golden.config);
    test::fill_by_formula(model);
    const NoGrad no_grad;
    const Tensor ids = golden.ids.rows(0, 1);
    const auto whole = test::values(model.logits(model.forward(ids)).value());
    KeyValueCache cache = model.make_cache(golden.config.n_positions);
    std::vector<double> parts;
    for (const auto& [first, count] : {std::pair(0, 5), {5, 1}, {6, 1}, {7, 5}}) {
      const Tensor part = ids.view({golden.length}).range(first, count).view({1, count});
      for (const double x : test::values(model.logits(model.forward(part, cache)).value())) parts.push_back(x);
    }
    EXPECT_EQ(cache.length(), golden.length);
    ASSERT_EQ(parts.size(), whole.size());
    // Logits are of order 1; bfloat16 rounds about 30 times by 2⁻⁹.
    const double tolerance = dtype == DType::f64 ? 1e-13 : dtype == DType::f32 ? 1e-5 : 0.1;
    for (size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(parts[i], whole[i], tolerance) << dtype << " " << i;
  }
}

TEST(Generate, ContinuesBeyondThePositions) {
  gpt2_golden::Golden golden(DType::f32);
  const Gpt2 model(golden.config);
  test::fill_by_formula(model);
  const int64_t positions = golden.config.n_positions;
  std::vector<int32_t> text{1, 2, 3};
  const auto found = generate(model, text, 3 * positions, golden.config.vocab_size, kGreedy);
  // The definition: each token continues the last tokens that the cache held.
  std::vector<int32_t> expected;
  size_t first = 0;
  const NoGrad no_grad;
  for (int64_t i = 0; i < 3 * positions; ++i) {
    if (std::ssize(text) - static_cast<int64_t>(first) > positions)
      first = text.size() - static_cast<size_t>((positions + 1) / 2);
    const std::vector<int32_t> window(text.begin() + static_cast<std::ptrdiff_t>(first), text.end());
    const Tensor ids = Tensor::of(window, {1, std::ssize(window)});
    const auto logits = model.logits(model.forward(ids)).value().to_vector<float>();
    const std::span last = std::span(logits).last(static_cast<size_t>(golden.config.vocab_size));
    text.push_back(sample_token(last, kGreedy, 0));
    expected.push_back(text.back());
  }
  EXPECT_EQ(found, expected);
}

TEST(Generate, SameSeedSameText) {
  gpt2_golden::Golden golden(DType::f32);
  const Gpt2 model(golden.config);
  test::fill_by_formula(model);
  const std::vector<int32_t> prompt{5, 6};
  const auto with = [&](uint64_t seed) {
    return generate(model, prompt, 14, golden.config.vocab_size, {.seed = seed});
  };
  EXPECT_EQ(with(1), with(1));
  EXPECT_NE(with(1), with(2));
}

TEST(Generate, DrawsOnlyTokensOfTheVocabulary) {
  gpt2_golden::Golden golden(DType::f32);
  const Gpt2 model(golden.config);
  test::fill_by_formula(model);
  const std::vector<int32_t> prompt{1, 2};
  for (const int32_t token : generate(model, prompt, 50, 10, {.temperature = 100})) EXPECT_LT(token, 10);
}

// The cache for all positions alone has 4 MiB.
TEST(Generate, CacheHasTheSizeOfTheText) {
  const auto model = make_gpt2({.vocab_size = 8, .n_positions = 1 << 15, .n_embd = 16, .n_layer = 1, .n_head = 1});
  Pool& pool = *context().pool;
  pool.reset_peak();
  const int64_t before = pool.stats().bytes_in_use;
  generate(*model, std::vector<int32_t>{1, 2, 3}, 5, 8, kGreedy);
  EXPECT_LT(pool.stats().peak_bytes_in_use - before, 1 << 20);
}

TEST(Generate, StopsAfterTheEndToken) {
  gpt2_golden::Golden golden(DType::f32);
  const Gpt2 model(golden.config);
  test::fill_by_formula(model);
  const auto text = golden.file["greedy"][0];
  const auto prompt = text["prompt"].get<std::vector<int32_t>>();
  const auto all = text["continuation"].get<std::vector<int32_t>>();
  std::vector<int32_t> seen;
  const auto found = generate(model, prompt, 11, golden.config.vocab_size, kGreedy, std::span(all).first(1),
                              [&](int32_t token) { seen.push_back(token); });
  EXPECT_EQ(found, std::vector<int32_t>{all[0]});
  EXPECT_EQ(seen, found);
}

TEST(SampleToken, FollowsTheProbabilities) {
  const std::vector<float> logits{std::log(1.f), std::log(4.f), std::log(3.f), std::log(2.f)};
  const auto counts = [&](const SampleOptions& options) {
    std::map<int32_t, int> result;
    for (int i = 0; i < 1000; ++i) ++result[sample_token(logits, options, (i + 0.5) / 1000)];
    return result;
  };
  using Counts = std::map<int32_t, int>;
  EXPECT_EQ(counts({}), (Counts{{0, 100}, {1, 400}, {2, 300}, {3, 200}}));
  EXPECT_EQ(counts({.top_k = 2}), (Counts{{1, 571}, {2, 429}}));
  EXPECT_EQ(counts({.top_p = 0.65}), (Counts{{1, 571}, {2, 429}}));
  EXPECT_EQ(counts({.top_p = 0.75}), (Counts{{1, 444}, {2, 334}, {3, 222}}));
  EXPECT_EQ(counts({.top_p = 1e-9}), (Counts{{1, 1000}}));
  EXPECT_EQ(counts({.temperature = 0}), (Counts{{1, 1000}}));
  // Squares of the probabilities: 1, 16, 9, 4 of 30.
  EXPECT_EQ(counts({.temperature = 0.5}), (Counts{{0, 33}, {1, 533}, {2, 300}, {3, 134}}));
  EXPECT_EQ(counts({.top_k = 100}), counts({}));
}

TEST(SampleToken, TakesTheLowerOfEqualTokens) {
  const std::vector<float> logits{1, 2, 2};
  EXPECT_EQ(sample_token(logits, kGreedy, 0), 1);
  EXPECT_EQ(sample_token(logits, {.top_k = 1}, 0.99), 1);
}

TEST(Generate, NamesInvalidInput) {
  gpt2_golden::Golden golden(DType::f32);
  const Gpt2 model(golden.config);
  const auto message = [&](const std::vector<int32_t>& prompt, const SampleOptions& options = {}) {
    return error_of([&] { generate(model, prompt, 1, golden.config.vocab_size, options); });
  };
  EXPECT_THAT(message({}), HasSubstr("the prompt is empty"));
  EXPECT_THAT(message(std::vector<int32_t>(17, 1)), HasSubstr("the prompt has 17 tokens, the model has 16 positions"));
  EXPECT_THAT(message({3, 97}), HasSubstr("token [0, 1] is 97, expected [0, vocab_size 97)"));
  EXPECT_THAT(message({1}, {.temperature = -1}), HasSubstr("temperature must be finite and not negative, got -1"));
  EXPECT_THAT(message({1}, {.top_k = -1}), HasSubstr("top_k must not be negative"));
  EXPECT_THAT(message({1}, {.top_p = 0}), HasSubstr("top_p must be in (0, 1], got 0"));
  EXPECT_EQ(error_of([&] { generate(model, std::vector<int32_t>{1}, 1, 98, {}); }),
            "generate: a vocabulary of 98 tokens, the model has 97 (vocab_size)");
  EXPECT_EQ(error_of([&] { generate(model, std::vector<int32_t>{1}, -3, 97, {}); }), "generate: count -3 is negative");
  const std::vector<float> bad{0, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_THAT(error_of([&] { sample_token(bad, {}, 0); }), HasSubstr("the logit of token 1 is not a number"));
}

}  // namespace generate_test
}  // namespace godwit
