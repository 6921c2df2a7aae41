#include "tests/models/resnet_golden.h"

namespace godwit {
namespace {

using resnet_golden::expect_golden;

TEST(Golden, ResNet20Float64) { expect_golden("resnet20", DType::f64); }
TEST(Golden, ResNet20Float32) { expect_golden("resnet20", DType::f32); }
TEST(Golden, ResNet50Float64) { expect_golden("resnet50", DType::f64); }
TEST(Golden, ResNet50Float32) { expect_golden("resnet50", DType::f32); }

}  // namespace
}  // namespace godwit
