#include "tests/models/image_golden.h"

namespace godwit {
namespace golden_test {

using image_golden::expect_golden;

TEST(Golden, ResNet20Float64) { expect_golden("resnet20", DType::f64); }
TEST(Golden, ResNet20Float32) { expect_golden("resnet20", DType::f32); }
TEST(Golden, ResNet50Float64) { expect_golden("resnet50", DType::f64, nullptr, /*steps=*/3); }
TEST(Golden, ResNet50Float32) { expect_golden("resnet50", DType::f32); }
TEST(Golden, VggFloat64) {
  for (const char* name : {"vgg16", "vgg16_bn", "vgg16_cifar"}) expect_golden(name, DType::f64);
}
TEST(Golden, VggFloat32) {
  for (const char* name : {"vgg16", "vgg16_bn", "vgg16_cifar"}) expect_golden(name, DType::f32);
}
TEST(Golden, VitFloat64) { expect_golden("vit", DType::f64); }
TEST(Golden, VitFloat32) { expect_golden("vit", DType::f32); }

}  // namespace golden_test
}  // namespace godwit
