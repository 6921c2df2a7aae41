// Errors of the CUDA libraries: unsupported shapes and engines, lack of memory, and calls that capture forbids.
#include <gmock/gmock.h>

#include <thread>

#include "apps/report/convolution_notices.h"
#include "autograd/ops/convolution/conv2d.h"
#include "autograd/ops/linear.h"
#include "engine/device.h"
#include "engine/gpu.h"
#include "engine/graph.h"
#include "tests/emulated_cuda/cublasLt.h"
#include "tests/emulated_cuda/cudnn.h"
#include "tests/on_gpu.h"
#include "tests/support.h"

namespace godwit {
namespace cuda_faults_test {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class CudaFaults : public OnGpu {
 protected:
  void TearDown() override {
    emulated_dnn::not_supported = nullptr;
    emulated_blas::epilogues = true;
    emulated::total_bytes = size_t{1} << 30;
  }

  // Limits device memory to `bytes` more than is in use. Call after the thread's first tensors exist.
  static void leave(size_t bytes) { emulated::total_bytes = emulated::used_bytes() + bytes; }
};

constexpr int64_t kMiB = 1 << 20;

Tensor megabytes(int64_t count) { return Tensor({count * kMiB}, DType::u8); }

TEST_F(CudaFaults, OutOfMemoryDuringACaptureIsReportedAndLeaksNothing) {
  on_gpu([] {
    CudaGraphCache graphs;
    std::shared_ptr<Pool> pool;
    const auto step = [&] {
      pool = detail::cuda_pool(cuda_device(0));
      { const Tensor x = megabytes(8); }  // its segment is free but too small for the next allocation
      if (capturing()) megabytes(64);
    };
    EXPECT_EQ(graphs.run({1}, step), CudaGraphCache::How::eager);
    const size_t used = emulated::used_bytes();
    const int64_t reserved = pool->stats().bytes_reserved;
    leave(32 * kMiB);
    const std::string error = error_of([&] { graphs.run({1}, step); });
    EXPECT_THAT(error, HasSubstr("out of memory: 67108864 bytes requested"));
    EXPECT_THAT(error,
                HasSubstr("cached memory cannot be freed while a CUDA graph is captured; use --set cuda_graph=false"));
    EXPECT_EQ(emulated::used_bytes(), used);
    EXPECT_EQ(pool->stats().bytes_reserved, reserved) << "the pool accounts for all its memory";
    const Tensor after = Tensor::full({3}, 2);
    EXPECT_EQ(after.item(2), 2) << "the thread can still run kernels";
    leave(60 * kMiB);
    pool->release(pool->allocate(64 * kMiB), 64 * kMiB);  // outside a capture the free segment is released
  });
}

TEST_F(CudaFaults, ThreadsReleaseMemoryWhileAnotherCaptures) {
  on_gpu([] {
    CudaGraphCache graphs;
    Tensor x = Tensor::zeros({4});
    size_t freed = 0;
    const auto step = [&] {
      x.fill(1);
      if (capturing())
        std::thread([&] {
          const ContextGuard guard(context_on(cuda_device(0)));
          { const Tensor other = megabytes(8); }
          const size_t before = emulated::used_bytes();
          detail::cuda_pool(cuda_device(0))->trim();
          freed = before - emulated::used_bytes();
        }).join();
      x.fill(2);
    };
    graphs.run({}, step);
    EXPECT_EQ(graphs.run({}, step), CudaGraphCache::How::captured);
    EXPECT_EQ(freed, 8 * kMiB);
    EXPECT_EQ(x.item(3), 2);
  });
}

TEST_F(CudaFaults, EmptyTensorsAddNothingToACapture) {
  on_gpu([] {
    CudaGraphCache graphs;
    Tensor x = Tensor::zeros({2});
    for (int step = 0; step < 3; ++step) {
      graphs.run({}, [&] {
        const Tensor none = Tensor::zeros({0});
        none.fill(1);
        none.copy_from(none.clone());
        x.fill(3);
      });
      EXPECT_EQ(x.item(1), 3);
    }
    EXPECT_EQ(graphs.captures(), 1);
  });
}

const Conv2dShape kLayer = conv2d_shape({2, 6, 6, 8}, {8, 3, 3, 8}, {.padding = 1});

Tensor layer_result() {
  const Tensor x = Tensor::full({2, 6, 6, 8}, 1.5), w = Tensor::full({8, 3, 3, 8}, 0.25),
               y = Tensor::full({2, 6, 6, 8}, NAN);
  on_device(y, [&](auto device) { conv2d_forward(device, kLayer, x, w, Tensor(), y); });
  return y;
}

constexpr double kInner = 9 * 8 * 1.5 * 0.25;  // for pixels away from the padding

TEST_F(CudaFaults, ConvolutionsUnsupportedByCudnnUsePlainKernelsAndAreReported) {
  using Call = std::pair<const char*, int>;
  for (const auto& [call, what] : {Call{"Finalize", CUDNN_BACKEND_TENSOR_DESCRIPTOR},
                                   {"Finalize", CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR},
                                   {"Finalize", CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR},
                                   {"Finalize", CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR},
                                   {"Finalize", CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR},
                                   {"Finalize", CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR},
                                   {"GetAttribute", CUDNN_ATTR_ENGINEHEUR_RESULTS},
                                   {"GetAttribute", CUDNN_ATTR_ENGINECFG_ENGINE},
                                   {"GetAttribute", CUDNN_ATTR_ENGINE_NUMERICAL_NOTE},
                                   {"GetAttribute", CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE},
                                   {"Execute", -1}}) {
    SCOPED_TRACE(detail::concat(call, " ", what));
    gpu_ = context_on(cuda_device(0));  // without choices of algorithms
    emulated_dnn::not_supported = [call = std::string(call), what = what](const char* asked, int of) {
      return asked == call && (what == of || what < 0);
    };
    on_gpu([&] {
      for (int i = 0; i < 2; ++i) EXPECT_EQ(layer_result().item((6 + 1) * 8), kInner);
      const ConvolutionPaths& paths = convolution_paths();
      EXPECT_EQ(paths.operations, 1);
      EXPECT_THAT(paths.by_float32, SizeIs(0));
      ASSERT_THAT(paths.plain, SizeIs(1)) << "once per shape";
      EXPECT_THAT(paths.plain[0], HasSubstr("conv2d forward, x float32 [2, 6, 6, 8], weight float32 [8, 3, 3, 8]"));
      EXPECT_THAT(paths.plain[0], HasSubstr("CUDNN_STATUS_NOT_SUPPORTED (a test's"));
    });
  }
}

TEST_F(CudaFaults, EachShapeIsReportedOnceAndAllAreCounted) {
  on_gpu([] {
    apps::ConvolutionNotices notices;
    EXPECT_THAT(notices.summary(), SizeIs(0));
    const auto forward = [](int64_t batch) {
      const Tensor x = Tensor::full({batch, 1, 1, 8}, 1), w = Tensor::full({8, 1, 1, 8}, 1), y({batch, 1, 1, 8});
      const Conv2dShape s = conv2d_shape(x.shape(), w.shape(), {});
      on_device(y, [&](auto device) { conv2d_forward(device, s, x, w, Tensor(), y); });
    };
    forward(1);
    EXPECT_THAT(notices.fresh(), SizeIs(0));
    emulated_dnn::not_supported = [](const char*, int what) { return what == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR; };
    for (int i = 0; i < 2; ++i) {
      forward(2);
      const std::vector<std::string> texts = notices.fresh();
      ASSERT_THAT(texts, SizeIs(i == 0 ? 1 : 0));
      for (const std::string& text : texts)
        EXPECT_THAT(text, HasSubstr("cuDNN is not used; a much slower plain kernel computes conv2d forward, x "
                                    "float32 [2, 1, 1, 8]"));
    }
    for (int64_t batch = 3; batch < 9; ++batch) forward(batch);
    EXPECT_THAT(notices.fresh(), SizeIs(4)) << "after five notices, shapes are only counted";
    ASSERT_THAT(notices.summary(), SizeIs(1));
    EXPECT_THAT(notices.summary()[0], HasSubstr("cuDNN was not used for 7 of 8 convolution shapes"));
  });
}

TEST_F(CudaFaults, LinearLayersNeedNoEpilogueOfCublasLt) {
  for (const bool epilogues : {true, false}) {
    gpu_ = context_on(cuda_device(0));  // without choices of algorithms
    emulated_blas::epilogues = epilogues;
    on_gpu([] {
      const Tensor x = Tensor::full({16, 8}, 0.5), w = Tensor::full({24, 8}, 0.25), bias = Tensor::full({24}, 3),
                   y = Tensor::full({16, 24}, NAN), dw = Tensor::full({24, 8}, NAN), db = Tensor::full({24}, NAN);
      on_device(y, [&](auto device) {
        linear_forward(device, x, {w}, {bias}, y);
        linear_backward_weights(device, x, y, {dw}, {db});
      });
      EXPECT_EQ(y.item(100), 4);
      EXPECT_EQ(dw.item(100), 16 * 4 * 0.5);
      EXPECT_EQ(db.item(20), 16 * 4);
    });
  }
}

TEST_F(CudaFaults, AnEngineThatFailsToRunIsReplacedByTheNext) {
  gpu_->tf32 = true;  // two engines are acceptable: one with tensor cores, one in float32
  int refused = -1, executed = 0;
  emulated_dnn::not_supported = [&](const char* call, int engine) {
    if (std::string(call) != "Execute") return false;
    ++executed;
    if (refused < 0) refused = engine;
    return engine == refused;
  };
  on_gpu([&] {
    emulated_dnn::in_float32 = emulated_dnn::in_tf32 = 0;
    EXPECT_EQ(layer_result().item((6 + 1) * 8), kInner);
    EXPECT_EQ(executed, 2);
    EXPECT_EQ(layer_result().item((6 + 1) * 8), kInner);
    EXPECT_EQ(executed, 3) << "the choice is cached";
    EXPECT_EQ(emulated_dnn::in_float32, 2);
    EXPECT_EQ(emulated_dnn::in_tf32, 0);
    EXPECT_THAT(convolution_paths().plain, SizeIs(0));
    emulated_dnn::not_supported = [](const char* call, int) { return std::string(call) == "Execute"; };
    EXPECT_THAT(error_of([] { layer_result(); }), HasSubstr("cudnnBackendExecute of conv2d forward, x float32"))
        << "an engine that has run before is never replaced, because results would change";
  });
}

// A gradient of 1 × 1 filters for bfloat16 images with c channels, whose values are all `product`. Returns its first
// element.
double filter_gradient(int64_t c, double product) {
  const Tensor x = Tensor::full({2, 6, 6, c}, product, DType::bf16), dy = Tensor::full({2, 6, 6, 8}, 1, DType::bf16),
               dw = Tensor::full({8, 1, 1, c}, NAN);
  const Conv2dShape s = conv2d_shape(x.shape(), dw.shape(), {});
  on_device(x, [&](auto device) { conv2d_backward_weights(device, s, x, dy, dw, Tensor()); });
  return dw.item(0);
}

TEST_F(CudaFaults, Float32FilterGradientsOfBfloat16ImagesTakeTheBestRouteAndDetoursAreReportedOnce) {
  constexpr double kProduct = 1 + 0x1p-7, kSum = 72 * kProduct;  // kSum has 13 bits
  const double rounded = Tensor::full({1}, kSum, DType::bf16).item(0);
  ASSERT_NE(rounded, kSum);
  on_gpu([&] {
    const ConvolutionPaths& paths = convolution_paths();
    apps::ConvolutionNotices notices;
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(filter_gradient(8, kProduct), kSum) << "in one graph with a copy to float32";
      EXPECT_THAT(paths.rounded, SizeIs(0));
      EXPECT_THAT(notices.fresh(), SizeIs(0));
    }
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(filter_gradient(3, kProduct), rounded) << "its graph can be wrong for 3 channels";
    EXPECT_EQ(filter_gradient(5, kProduct), rounded);
    ASSERT_THAT(paths.rounded, SizeIs(2)) << "once per shape";
    EXPECT_THAT(
        paths.rounded[0],
        testing::AllOf(HasSubstr("conv2d backward filters, x bfloat16 [2, 6, 6, 3], weight float32 [8, 1, 1, 3]"),
                       HasSubstr("can be wrong unless channels are multiples of 8")));
    const auto texts = notices.fresh();
    ASSERT_THAT(texts, SizeIs(1)) << "once per run";
    EXPECT_THAT(texts[0], HasSubstr("in bfloat16, which rounds it to 8 bits: conv2d backward filters"));
    EXPECT_EQ(paths.operations, 3);
    EXPECT_THAT(paths.plain, SizeIs(0));
    EXPECT_THAT(notices.summary(), testing::ElementsAre(HasSubstr("filter gradients of 2 of 3 convolution shapes")));
  });
}

TEST_F(CudaFaults, FilterGradientsWithoutABfloat16EngineAreComputedInFloat32AndReported) {
  on_gpu([] {
    const Tensor x = Tensor::full({2, 6, 6, 8}, 1, DType::bf16), dy = Tensor::full({2, 6, 6, 7}, 0.5, DType::bf16),
                 dw = Tensor::full({7, 3, 3, 8}, NAN);
    const Conv2dShape s = conv2d_shape(x.shape(), dw.shape(), {.padding = 1});
    for (int i = 0; i < 2; ++i)
      on_device(x, [&](auto device) { conv2d_backward_weights(device, s, x, dy, dw, Tensor()); });
    EXPECT_EQ(dw.item(4 * 8), 2 * 6 * 6 * 0.5);
    const ConvolutionPaths& paths = convolution_paths();
    EXPECT_EQ(paths.operations, 1);
    EXPECT_THAT(paths.plain, SizeIs(0));
    EXPECT_THAT(paths.rounded, SizeIs(0));
    ASSERT_THAT(paths.by_float32, SizeIs(1));
    EXPECT_THAT(paths.by_float32[0],
                testing::AllOf(HasSubstr("conv2d backward filters, x bfloat16 [2, 6, 6, 8]"),
                               HasSubstr("; with a bfloat16 result: of 0 engines"), HasSubstr("odd output channels")));
  });
}

}  // namespace cuda_faults_test
}  // namespace godwit
