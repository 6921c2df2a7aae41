// Launch of buckets by a rank on a GPU whose groups use kernels that wait for other ranks.
#include <gtest/gtest.h>

#include "autograd/ops/linear.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "comm/buckets/scheduler.h"
#include "comm/exchange/method.h"
#include "comm/transport/local.h"
#include "engine/graph.h"
#include "tests/comm/waiting_groups.h"

namespace godwit {
namespace cuda_scheduler_test {

// Two layers whose parameters have one bucket each.
struct Model {
  Var first = weight({8, 8}), second = weight({3, 8});
  Buckets buckets{{{"first", first, true}, {"second", second, true}}, {.first_bytes = 1, .bytes = 1, .alignment = 4}};

  static Var weight(const Shape& shape) { return Var(Tensor::full(shape, 0.25), true); }
  Var loss(const Tensor& x) const {
    const Tensor labels({x.dim(0)}, DType::i32, kCpu);
    labels.zero();
    return ops::softmax_cross_entropy(ops::linear(ops::linear(Var(x), first), second), labels);
  }
};

class CudaScheduler : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << why_no_cuda();
  }
  template <class F>
  static void run(const F& body, bool waiting = true) {
    run_local({2, 1},
              [&](Communicator& host) {
                Communicator comm =
                    waiting ? test::with_waiting_groups(host, std::make_shared<test::CallLog>()) : host;
                Model model;
                auto exchange = make_exchange("dense", model.buckets, comm, 1);
                Scheduler scheduler(
                    model.buckets, [&](Bucket& bucket) { exchange->mean(bucket, comm, 1); }, &comm);
                body(model, scheduler);
              },
              {.threads_per_rank = 1, .placement = {"cuda", /*share_gpu=*/true, /*nccl=*/false}});
  }
};

TEST_F(CudaScheduler, DoesNotOverlapAStepWithNewShapes) {
  run([](const Model& model, Scheduler& scheduler) {
    const auto overlapped = [&](int64_t batch) {
      scheduler.begin_step();
      scheduler.backward(model.loss(Tensor::full({batch, 8}, 1)));
      scheduler.finish_step();
      return scheduler.overlapped();
    };
    EXPECT_EQ(overlapped(4), 0) << "the first step";
    EXPECT_EQ(overlapped(4), 2);
    EXPECT_EQ(overlapped(5), 0) << "a new shape";
    EXPECT_EQ(overlapped(5), 2);
    EXPECT_EQ(overlapped(4), 2);
  });
}

TEST_F(CudaScheduler, DoesNotOverlapACapturedStep) {
  run([](const Model& model, Scheduler& scheduler) {
    CudaGraphCache graphs;
    const Tensor x = Tensor::full({4, 8}, 1);
    std::vector<float> first;
    for (int step = 0; step < 5; ++step) {
      scheduler.begin_step();
      graphs.run({}, [&] { scheduler.backward(model.loss(x)); });
      scheduler.finish_step();
      EXPECT_EQ(scheduler.overlapped(), step < 2 ? 0 : 2) << "step " << step;
      const auto gradient = model.first.grad().to_vector<float>();
      if (step == 0) first = gradient;
      EXPECT_EQ(gradient, first);
    }
  });
}

TEST_F(CudaScheduler, OverlapsTheFirstStepIfNoKernelWaits) {
  run(
      [](const Model& model, Scheduler& scheduler) {
        scheduler.begin_step();
        scheduler.backward(model.loss(Tensor::full({4, 8}, 1)));
        scheduler.finish_step();
        EXPECT_EQ(scheduler.overlapped(), 2);
      },
      false);
}

}  // namespace cuda_scheduler_test
}  // namespace godwit
