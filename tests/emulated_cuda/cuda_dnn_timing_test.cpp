// Timing of cuDNN's engines: the choice, its reuse in later runs, and unusable files.
#include <gmock/gmock.h>

#include <cstdlib>
#include <thread>

#include "apps/report/convolution_notices.h"
#include "autograd/ops/convolution/conv2d.h"
#include "engine/device.h"
#include "engine/gpu.h"
#include "engine/graph.h"
#include "tests/emulated_cuda/cudnn.h"
#include "tests/on_gpu.h"
#include "tests/support.h"

namespace godwit {
namespace cuda_dnn_timing_test {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using namespace emulated_dnn;

// The engines acceptable in float32 are kPlain, kSplit2, kSplit3 and kLast, in this order.
class CudaDnnTiming : public OnGpu {
 protected:
  void SetUp() override {
    setenv("GODWIT_CACHE", (folder_ / "cache").c_str(), 1);
    new_run();
    not_supported = [&](const char* call, int engine) {
      if (std::string(call) != "Execute") return false;
      executed_.push_back(engine);
      return refuses_ && refuses_(engine);
    };
    set_times({{kPlain, 3}, {kSplit2, 2}, {kSplit3, 1}, {kLast, 0.1}});
  }
  void TearDown() override {
    unsetenv("GODWIT_CACHE");
    not_supported = nullptr;
    milliseconds = nullptr;
    workspaces.clear();
  }

  // A rank without choices of engines.
  void new_run(bool dnn_timing = true) {
    gpu_ = context_on(cuda_device(0));
    gpu_->dnn_timing = dnn_timing;
  }
  static void set_times(std::map<int, double> times) {
    milliseconds = [times](int engine) { return times.contains(engine) ? times.at(engine) : 1; };
  }

  // Computes a convolution of `images` images and checks the result. Returns the engines that ran; the last engine
  // computed the result.
  std::vector<int> layer(int64_t images = 2) {
    executed_.clear();
    on_gpu([&] { compute(images); });
    return executed_;
  }
  static void compute(int64_t images) {
    const Conv2dShape shape = conv2d_shape({images, 6, 6, 8}, {8, 3, 3, 8}, {.padding = 1});
    const Tensor x = Tensor::full({images, 6, 6, 8}, 1.5), w = Tensor::full({8, 3, 3, 8}, 0.25),
                 y = Tensor::full({images, 6, 6, 8}, NAN);
    on_device(y, [&](auto device) { conv2d_forward(device, shape, x, w, Tensor(), y); });
    EXPECT_EQ(y.item((6 + 1) * 8), 9 * 8 * 1.5 * 0.25);
  }
  ConvolutionPaths paths() const {
    return on_gpu([] { return convolution_paths(); });
  }
  std::vector<std::string> notices() const {
    return on_gpu([] { return apps::ConvolutionNotices().fresh(); });
  }

  // The file of choices, which must be the only file besides its lock.
  std::string file() const {
    std::string found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "cache")) {
      if (entry.path().extension() == ".lock") continue;
      EXPECT_EQ(found, "");
      found = entry.path();
    }
    return found;
  }
  std::string text() const {
    const Bytes bytes = read(file());
    return {bytes.begin(), bytes.end()};
  }
  void replace_in_file(const std::string& from, const std::string& to) const {
    std::string all = text();
    all.replace(all.find(from), from.size(), to);
    write(file(), Bytes(all.begin(), all.end()));
  }

  TempFolder folder_;
  std::vector<int> executed_;
  std::function<bool(int engine)> refuses_;
};

TEST_F(CudaDnnTiming, TakesTheFastestOfTheFirstThreeEngines) {
  const std::vector<int> first = layer();
  EXPECT_THAT(first, Not(Contains(kLast)));
  EXPECT_THAT(first, Contains(kPlain));
  EXPECT_THAT(first, Contains(kSplit2));
  EXPECT_EQ(first.back(), kSplit3);
  EXPECT_THAT(layer(), ElementsAre(kSplit3)) << "timed once";
  EXPECT_EQ(layer(3).back(), kSplit3) << "another shape";
  EXPECT_EQ(paths().timed, 2);
  EXPECT_THAT(notices(), SizeIs(0));
  on_gpu([] {
    EXPECT_THAT(apps::ConvolutionNotices().summary(),
                ElementsAre("engines were timed for 2 of 2 convolution shapes; later runs use these choices"));
  });
}

TEST_F(CudaDnnTiming, OfEquallyFastEnginesTheFirstIsTaken) {
  set_times({});
  EXPECT_EQ(layer().back(), kPlain);
  set_times({{kPlain, 2}});
  EXPECT_EQ(layer(3).back(), kSplit2);
}

TEST_F(CudaDnnTiming, OneSlowRunDoesNotDecide) {
  milliseconds = [runs = 0](int engine) mutable { return engine == kPlain ? (++runs % 2 == 0 ? 50 : 1) : 2; };
  EXPECT_EQ(layer().back(), kPlain);
}

TEST_F(CudaDnnTiming, LaterRunsUseTheSameEngineWithoutTiming) {
  layer();
  EXPECT_THAT(text(), HasSubstr("\n6_k0=3\tconv2d forward, x float32 [2, 6, 6, 8], weight float32 [8, 3, 3, 8], y"));
  EXPECT_THAT(file(), HasSubstr("/cache/convolutions-emulated-on-the-CPU-9.0-"));
  EXPECT_THAT(text(), HasSubstr("emulated on the CPU, 9.0, "));
  EXPECT_THAT(text(), HasSubstr("cuDNN 91900, CUDA driver 13000, runtime 13000\n"));
  set_times({{kPlain, 0.1}});
  new_run();
  EXPECT_THAT(layer(), Each(kSplit3));
  EXPECT_EQ(paths().timed, 0);
  EXPECT_EQ(layer(3).back(), kPlain) << "a new shape is timed";
}

TEST_F(CudaDnnTiming, IsOffByDefault) {
  EXPECT_FALSE(Context().dnn_timing);
  layer();
  new_run(false);
  EXPECT_THAT(layer(), ElementsAre(kPlain)) << "cuDNN's first proposal, whatever is in the file";
}

TEST_F(CudaDnnTiming, EnginesThatDoNotRunAreLeftOut) {
  refuses_ = [](int engine) { return engine == kPlain; };
  EXPECT_EQ(layer().back(), kLast) << "the first three that run";
  refuses_ = [runs = 0](int engine) mutable { return engine == kSplit3 && ++runs > 1; };
  set_times({{kPlain, 3}, {kSplit2, 2}, {kSplit3, 1}, {kLast, 4}});
  EXPECT_EQ(layer(3).back(), kSplit2) << "kSplit3 fails in its second run";
  refuses_ = [](int) { return true; };
  layer(4);  // by plain kernels
  EXPECT_THAT(paths().plain, SizeIs(1));
}

TEST_F(CudaDnnTiming, OnlyTheFirstEngineMayNeedALargeWorkspace) {
  constexpr int64_t kMost = 256 << 20;
  workspaces = {{kPlain, kMost + 1}, {kSplit2, kMost + 1}};
  EXPECT_EQ(layer().back(), kLast) << "the third that is timed";
  EXPECT_THAT(executed_, Contains(kPlain));
  EXPECT_THAT(executed_, Not(Contains(kSplit2)));
  workspaces = {{kSplit2, kMost}};
  EXPECT_EQ(layer(3).back(), kSplit3);
  EXPECT_THAT(executed_, Contains(kSplit2));
}

TEST_F(CudaDnnTiming, EnginesThatAreNotAcceptableAreNeverTakenFromTheFile) {
  layer();
  for (const char* const name :
       {"0", "1", "2", "3", "4", "6", "6_k0=4", "6_k1=3", "999999999999999999999", "x", "-1"}) {
    replace_in_file("\n6_k0=3\t", detail::concat("\n", name, "\t"));
    new_run();
    EXPECT_EQ(layer().back(), kSplit3) << name;
    EXPECT_EQ(paths().timed, 1) << name;
    EXPECT_THAT(text(), HasSubstr("\n6_k0=3\tconv2d")) << name;
  }
}

TEST_F(CudaDnnTiming, AnEntryThatNoLongerRunsIsReplaced) {
  layer();
  refuses_ = [](int engine) { return engine == kSplit3; };
  new_run();
  EXPECT_EQ(layer().back(), kLast);
  EXPECT_THAT(text(), HasSubstr("\n8\tconv2d"));
}

TEST_F(CudaDnnTiming, DamagedFilesAreReportedAndReplaced) {
  layer();
  const std::string whole = text();
  for (const size_t left : {size_t{0}, size_t{20}, whole.size() - 1}) {
    const std::string part = whole.substr(0, left);
    write(file(), Bytes(part.begin(), part.end()));
    new_run();
    EXPECT_EQ(layer().back(), kSplit3);
    EXPECT_EQ(text(), whole);
    EXPECT_THAT(notices(),
                ElementsAre(HasSubstr("choices of convolution engines are ignored and made again: " + file())));
  }
}

TEST_F(CudaDnnTiming, UsesTheFirstProposalIfChoicesCannotBeKept) {
  write(folder_ / "cache", {});  // a file where the folder should be
  EXPECT_EQ(layer().back(), kPlain) << "not the fastest: the next run might find another one";
  EXPECT_THAT(layer(3), ElementsAre(kPlain)) << "nothing is timed any more";
  EXPECT_EQ(paths().timed, 0);
  EXPECT_THAT(notices(),
              ElementsAre(HasSubstr("cuDNN's first proposals are used without timing, because choices cannot be "
                                    "kept: " +
                                    (folder_ / "cache"))));
}

TEST_F(CudaDnnTiming, RanksThatTimeAtOnceUseTheFirstChoiceRecorded) {
  bool other_rank = true;
  milliseconds = [&](int engine) {
    if (std::exchange(other_rank, false)) {
      set_times({{kPlain, 3}, {kSplit2, 1}, {kSplit3, 2}});
      std::thread([] {
        Context other = context_on(cuda_device(1));
        other.dnn_timing = true;
        const ContextGuard guard(other);
        compute(2);
      }).join();
      set_times({{kPlain, 3}, {kSplit2, 2}, {kSplit3, 1}});
    }
    return static_cast<double>(engine == kPlain ? 3 : 1);
  };
  EXPECT_EQ(layer().back(), kSplit2);
  EXPECT_THAT(executed_, Contains(kSplit3)) << "this rank has timed, and found another engine fastest";
  EXPECT_THAT(text(), HasSubstr("\n6_k0=2\tconv2d"));
}

TEST_F(CudaDnnTiming, NothingIsTimedWhileAGraphIsCaptured) {
  executed_.clear();
  on_gpu([&] {
    CudaGraphCache graphs;
    graphs.run({}, [] {});
    EXPECT_EQ(
        graphs.run({},
                   [] {
                     const Conv2dShape shape = conv2d_shape({2, 1, 1, 8}, {8, 1, 1, 8}, {});
                     const Tensor x = Tensor::full({2, 1, 1, 8}, 1), w = Tensor::full({8, 1, 1, 8}, 1), y({2, 1, 1, 8});
                     on_device(y, [&](auto device) { conv2d_forward(device, shape, x, w, Tensor(), y); });
                   }),
        CudaGraphCache::How::captured);
  });
  EXPECT_THAT(executed_, ElementsAre(kPlain));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "cache"));
}

}  // namespace cuda_dnn_timing_test
}  // namespace godwit
