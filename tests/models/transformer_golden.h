// Comparison of small transformers with HuggingFace transformers: tolerances and summaries.
#pragma once
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "comm/transport/local.h"
#include "tests/models/golden.h"

namespace godwit::testing {

using nlohmann::json;

// Allowed distance from HuggingFace's float64 results: norms and dots relative to the norm, samples to the root mean
// square, losses to the first loss.
struct Tolerance {
  double losses, norm, dot, sample, parameters;
};

// float64: rounding, amplified a hundred times as for float32 in the golden file (6e-6 from 6e-8). AdamW amplifies
// rounding of tiny gradients, so parameters after ten steps get a tolerance of 1e5 roundings.
inline constexpr Tolerance kFloat64{1e-12, 1e-12, 1e-12, 1e-12, 1e-10};

// float32: four times the largest distance from float64 among a dozen float32 runs of PyTorch whose initial weights
// differ by one rounding; at least 4e-6.
inline Tolerance float32_tolerance(const json& error) {
  auto from = [&](const char* key) { return std::max(4 * error[key].get<double>(), 4e-6); };
  return {from("losses"), from("gradients_norm"), from("gradients_dot"),
          std::max(from("gradients_sample"), from("outputs_sample")), from("parameters_sample")};
}

inline void expect_summary(const json& expected, double nothing, const std::string& name, const Tensor& tensor,
                           const Tolerance& tolerance) {
  ASSERT_TRUE(expected.contains(name)) << name;
  const auto golden = expected[name].get<std::vector<double>>();
  const std::vector<double> actual = summary(name, tensor, golden.size());
  if (golden[0] < nothing) {  // only rounding of gradients of order 1 remains
    EXPECT_LE(actual[0], tolerance.norm) << name << ": exceeds rounding";
    return;
  }
  EXPECT_NEAR(actual[0], golden[0], tolerance.norm * golden[0]) << name << ": norm";
  EXPECT_NEAR(actual[1], golden[1], tolerance.dot * golden[0]) << name << ": dot";
  const double rms = golden[0] / std::sqrt(static_cast<double>(tensor.numel()));
  for (size_t k = 2; k < golden.size(); ++k)
    EXPECT_NEAR(actual[k], golden[k], tolerance.sample * rms) << name << ": sample " << k;
}

inline Tensor table(const char* name, int64_t n, int64_t limit) {
  Tensor values({n}, DType::i32, kCpu);
  for (int64_t i = 0; i < n; ++i)
    values.data<int32_t>()[i] = static_cast<int32_t>(hashed_word(fnv1a(name), i) % static_cast<uint32_t>(limit));
  return values;
}

// Runs f(comm) on one rank on `device`.
inline void on_rank(const std::string& device, const std::function<void(Communicator&)>& f) {
  run_local({1, 1}, f, {.placement = {device}});
}

}  // namespace godwit::testing
