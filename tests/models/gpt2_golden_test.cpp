#include "tests/models/gpt2_golden.h"

namespace godwit {
namespace gpt2_golden_test {

using gpt2_golden::expect_golden_on;

TEST(Gpt2Golden, Float64) { expect_golden_on("cpu", "gelu_new", DType::f64); }
TEST(Gpt2Golden, Float32) { expect_golden_on("cpu", "gelu_new", DType::f32); }
TEST(Gpt2Golden, ErfGeluFloat64) { expect_golden_on("cpu", "gelu", DType::f64); }
TEST(Gpt2Golden, ErfGeluFloat32) { expect_golden_on("cpu", "gelu", DType::f32); }
TEST(Gpt2Golden, Bfloat16StaysNearFloat64) { test::on_rank("cpu", gpt2_golden::expect_bfloat16_near_float64); }

}  // namespace gpt2_golden_test
}  // namespace godwit
