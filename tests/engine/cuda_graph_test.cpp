// Steps captured as CUDA graphs.
#include <gmock/gmock.h>

#include <map>

#include "engine/event.h"
#include "engine/gpu.h"
#include "engine/graph.h"
#include "tests/on_gpu.h"
#include "tests/support.h"

namespace godwit {
namespace cuda_graph_test {

using ::testing::HasSubstr;
using How = CudaGraphCache::How;

class CudaGraphs : public OnGpu {};

// result: a CPU tensor, computed in GPU memory that earlier kernels used; kept: a GPU tensor.
struct Sum {
  Tensor number = Tensor({1000}, DType::f32, kCpu), added = Tensor::zeros({1000}), kept = Tensor::zeros({1000});
  Tensor result;
  void operator()() {
    { const Tensor x = Tensor::full({1000}, 1), y = x.clone(), z = y.to(DType::f64); }
    const Tensor x = number.to(context().device);  // reuses the memory of x, y and z above
    kept.copy_from(added);
    result = x.to(DType::bf16);
  }
};

TEST_F(CudaGraphs, ReplayUsesTheCurrentContentsOfTensors) {
  on_gpu([] {
    CudaGraphCache graphs;
    Sum sum;
    int64_t peak = 0;
    for (int step = 1; step <= 20; ++step) {
      sum.number.fill(step);
      sum.added.fill(100 * step);
      const Tensor of_others = Tensor::full({5000}, -1);
      EXPECT_EQ(graphs.captured({7}), step > 2);
      EXPECT_EQ(graphs.run({7}, [&] { sum(); }), step == 1 ? How::eager : step == 2 ? How::captured : How::replayed);
      EXPECT_EQ(sum.result.item(999), step);
      EXPECT_EQ(sum.kept.item(0), 100 * step);
      EXPECT_EQ(of_others.item(4999), -1);
      if (step == 2) peak = peak_gpu_bytes();
    }
    EXPECT_EQ(peak_gpu_bytes(), peak) << "replays must not allocate memory";
    EXPECT_EQ(graphs.captures(), 1);
  });
}

TEST_F(CudaGraphs, EachKeyHasItsOwnGraph) {
  on_gpu([] {
    CudaGraphCache graphs(2);
    std::vector<Tensor> results(4);
    for (int step = 0; step < 4; ++step)
      for (int64_t key = 1; key <= 3; ++key) {
        const How how = graphs.run({key, 5}, [&] { results[static_cast<size_t>(key)] = Tensor::full({key}, key); });
        EXPECT_EQ(how, step == 0 || key == 3 ? How::eager : step == 1 ? How::captured : How::replayed);
        EXPECT_EQ(results[static_cast<size_t>(key)].item(key - 1), key);
      }
    EXPECT_EQ(graphs.captures(), 2);
  });
}

TEST_F(CudaGraphs, HostCodeRunsInGraphBreaksAndBeforeReplays) {
  on_gpu([] {
    CudaGraphCache graphs;
    const Tensor x = Tensor::zeros({4});
    std::vector<double> seen;
    int replays = 0;
    for (int step = 0; step < 5; ++step)
      graphs.run({}, [&] {
        on_replay([&] { ++replays; });
        x.fill(1);
        graph_break([&] {
          EXPECT_FALSE(capturing());
          Event::record().wait();
          seen.push_back(x.item());
        });
        x.fill(2);
        graph_break([&] { seen.push_back(x.item()); });
        x.fill(3);
      });
    EXPECT_EQ(seen, (std::vector<double>{1, 2, 1, 2, 1, 2, 1, 2, 1, 2}));
    EXPECT_EQ(replays, 3);
    EXPECT_EQ(x.item(), 3);
  });
}

// An operation that cannot be captured throws an error and leaves the thread usable.
TEST_F(CudaGraphs, RefusesWorkThatCannotBeCaptured) {
  on_gpu([] {
    CudaGraphCache graphs;
    const Tensor x = Tensor::full({3}, 4);
    const auto refusal = [&](const std::vector<int64_t>& key, const std::function<void()>& f) {
      EXPECT_EQ(graphs.run(key, f), How::eager);
      const std::string error = error_of([&] { graphs.run(key, f); });
      EXPECT_FALSE(capturing());
      x.fill(5);
      EXPECT_EQ(x.item(2), 5) << "the thread can still run kernels";
      EXPECT_FALSE(graphs.captured(key));
      return error;
    };
    EXPECT_THAT(refusal({1}, [&] { x.item(); }),
                HasSubstr("the host cannot read a value on cuda:0, float32 [1], during CUDA graph capture"));
    EXPECT_THAT(refusal({2}, [] { synchronize(); }), HasSubstr("cudaStreamSynchronize failed"));
    EXPECT_THAT(refusal({3}, [] { Event::record(); }), HasSubstr("during CUDA graph capture; call graph_break()"));
    EXPECT_THAT(refusal({4},
                        [&] {
                          if (capturing()) graphs.run({5}, [] {});
                        }),
                HasSubstr("run() was called during CUDA graph capture"));
    EXPECT_THAT(refusal({6}, [] { check(!capturing(), "custom error"); }), HasSubstr("custom error"));
  });
}

// Without UsualPool, the table of the second key is in memory that replays of the first key overwrite.
TEST_F(CudaGraphs, TensorsOfTheUsualPoolSurviveReplays) {
  on_gpu([] {
    CudaGraphCache graphs;
    std::map<int64_t, Tensor> tables;
    const auto step = [&](int64_t n) {
      Tensor& table = tables[n];
      if (!table.defined()) {
        const UsualPool usual;
        table = Tensor::full({n}, static_cast<double>(n));
      }
      const Tensor scratch = Tensor::full({8 * n}, -1), more = scratch.clone();
    };
    std::vector<How> how;
    for (const int64_t n : {512, 512, 1024, 512, 1024}) {
      how.push_back(graphs.run({n}, [&] { step(n); }));
      for (const auto& [size, table] : tables) {
        EXPECT_EQ(table.item(0), size) << "after a run of " << n;
        EXPECT_EQ(table.item(size - 1), size) << "after a run of " << n;
      }
    }
    EXPECT_EQ(how, (std::vector{How::eager, How::captured, How::eager, How::replayed, How::captured}));
  });
}

TEST_F(CudaGraphs, BelongToTheThreadThatMadeThem) {
  std::unique_ptr<CudaGraphCache> graphs = on_gpu([] { return std::make_unique<CudaGraphCache>(); });
  EXPECT_THAT(error_of([&] { graphs->run({}, [] {}); }),
              HasSubstr("run() must be called on the thread and device of the constructor"));
}

}  // namespace cuda_graph_test
}  // namespace godwit
