#include "tests/models/llama_golden.h"

#include "models/generate.h"

namespace godwit {
namespace llama_golden_test {

using llama_golden::expect_golden_on;

const char* const kCases[] = {"llama", "llama3", "linear", "dynamic", "mistral", "qwen2", "mixtral"};

TEST(LlamaGolden, Float64) {
  for (const char* name : kCases) expect_golden_on("cpu", name, DType::f64);
}

TEST(LlamaGolden, Float32) {
  for (const char* name : kCases) expect_golden_on("cpu", name, DType::f32);
}

TEST(LlamaGolden, Bfloat16StaysNearFloat64) { test::on_rank("cpu", llama_golden::expect_bfloat16_near_float64); }

TEST(LlamaGolden, GreedyEqualsTransformers) {
  for (const char* name : kCases) {
    const llama_golden::Golden golden(name, DType::f32);
    const Llama model(golden.config);
    test::fill_by_formula(model);
    for (const auto& text : golden.expected["greedy"]) {
      const auto prompt = text["prompt"].get<std::vector<int32_t>>();
      const auto expected = text["continuation"].get<std::vector<int32_t>>();
      EXPECT_EQ(generate(model, prompt, std::ssize(expected), golden.config.vocab_size, {.temperature = 0}), expected)
          << name;
    }
  }
}

}  // namespace llama_golden_test
}  // namespace godwit
