// Image classifiers on a GPU compared with PyTorch's results.
#include "tests/models/image_golden.h"
#include "tests/on_gpu.h"

namespace godwit {
namespace cuda_image_golden_test {

using CudaGolden = OnGpu;

TEST_F(CudaGolden, ResNet20Float32) {
  on_gpu([] { image_golden::expect_golden("resnet20", DType::f32, nullptr, /*steps=*/3); });
}

TEST_F(CudaGolden, ResNet50Float32) {
  on_gpu([] { image_golden::expect_golden("resnet50", DType::f32, nullptr, /*steps=*/1); });
}

TEST_F(CudaGolden, VggFloat32) {
  on_gpu([] {
    for (const char* name : {"vgg16", "vgg16_bn", "vgg16_cifar"})
      image_golden::expect_golden(name, DType::f32, nullptr, /*steps=*/1);
  });
}

TEST_F(CudaGolden, VitFloat32) {
  on_gpu([] { image_golden::expect_golden("vit", DType::f32, nullptr, /*steps=*/3); });
}

// Activations with 8 significand bits through twenty layers: logits and losses differ by a few percent. Gradients pass
// through different relus and agree only in magnitude.
TEST_F(CudaGolden, ResNet20Bfloat16) {
  const image_golden::Tolerance bf16{
      .logits = 0.05, .eval_logits = 0.05, .losses = 0.05, .norm = 0.5, .dot = 0.7, .sample = 4, .running = 0.05};
  on_gpu([&] { image_golden::expect_golden("resnet20", DType::bf16, &bf16, /*steps=*/2); });
}

}  // namespace cuda_image_golden_test
}  // namespace godwit
