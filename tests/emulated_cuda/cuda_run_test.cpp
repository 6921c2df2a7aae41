// Complete runs of each program in this process. The emulated libraries and profiler record the calls.
#include <gmock/gmock.h>

#include "apps/image/image_config.h"
#include "apps/text/text_config.h"
#include "apps/train/main.h"
#include "tests/apps/small_data.h"
#include "tests/emulated_cuda/cublasLt.h"
#include "tests/emulated_cuda/cudnn.h"
#include "tests/emulated_cuda/nvtx3/nvToolsExt.h"

namespace godwit::apps {
namespace cuda_run_test {

size_t count_of(const std::string& word, const std::string& text) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size()) ++count;
  return count;
}

class CudaRun : public ::testing::Test {
 protected:
  CudaRun() {
    write_images(folder() / "images", "train", 16, 16);
    write_images(folder() / "images", "t10k", 4, 4);
    write_file(folder() / "tsv" / "train.tsv", reviews(16));
    write_file(folder() / "tsv" / "dev.tsv", reviews(4));
  }

  std::filesystem::path folder() const { return scratch_.str(); }

  // Runs one step with two workers that share the GPU. Returns stdout.
  std::string run(const Program& program, std::vector<std::string> flags) {
    emulated_blas::in_float32 = emulated_blas::in_tf32 = emulated_dnn::in_float32 = emulated_dnn::in_tf32 = 0;
    emulated_nvtx::ended.clear();
    std::filesystem::remove_all(folder() / "run");
    std::istringstream more("--device cuda --set share_gpu=true --nodes 2 --batch 2 --accumulation 2 --max-steps 1");
    flags.insert(flags.end(), std::istream_iterator<std::string>(more), {});
    flags.insert(flags.end(), {"--run-dir", folder() / "run"});
    flags.insert(flags.begin(), program.name);
    std::vector<char*> arguments;
    for (std::string& flag : flags) arguments.push_back(flag.data());
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(run_program(program, static_cast<int>(arguments.size()), arguments.data()), 0);
    return ::testing::internal::GetCapturedStdout();
  }

  std::string run_images(const std::string& set) {
    return run(image_program(), {"--data", folder() / "images", "--optimizer", "sgdm", "--set", set});
  }
  void run_texts(const std::string& tf32) {
    run(text_program(), {"--task", "classify", "--data", folder() / "tsv", "--model", "bert_tiny", "--length", "16",
                         "--optimizer", "adamw", "--set", tf32});
  }

 private:
  TempFolder scratch_;
};

TEST_F(CudaRun, Float32StaysFloat32UnlessTf32IsSet) {
  EXPECT_EQ(count_of("cuDNN", run_images("tf32=false")), 0) << "no notice expected";
  EXPECT_EQ(emulated_blas::in_tf32, 0);
  EXPECT_EQ(emulated_dnn::in_tf32, 0);
  const int64_t products = emulated_blas::in_float32, convolutions = emulated_dnn::in_float32;
  EXPECT_GT(products, 0);
  EXPECT_GT(convolutions, 0);
  run_images("tf32=true");
  EXPECT_EQ(emulated_blas::in_float32, 0);
  EXPECT_EQ(emulated_dnn::in_float32, 0);
  EXPECT_EQ(emulated_blas::in_tf32, products);
  EXPECT_EQ(emulated_dnn::in_tf32, convolutions);
  run_texts("tf32=true");
  EXPECT_EQ(emulated_blas::in_float32, 0);
  EXPECT_GT(emulated_blas::in_tf32, 0);
  run_texts("tf32=false");
  EXPECT_GT(emulated_blas::in_float32, 0);
  EXPECT_EQ(emulated_blas::in_tf32, 0);
}

TEST_F(CudaRun, ReportsConvolutionsThatCudnnRoundsToBfloat16) {
  const std::string half = run_images("dtype=bf16");
  EXPECT_EQ(count_of("notice: cuDNN computes a filter gradient in bfloat16, which rounds it to 8 bits: conv2d ", half),
            1);
  EXPECT_EQ(count_of("notice: cuDNN is not used", half), 0);
  EXPECT_THAT(half,
              ::testing::HasSubstr("cuDNN computed the filter gradients of 1 of 17 convolution shapes in bfloat16"))
      << "the first layer, which has one channel";
}

TEST_F(CudaRun, TimesConvolutionsOnlyIfAskedTo) {
  const std::string cache = folder() / "cache";
  setenv("GODWIT_CACHE", cache.c_str(), 1);
  run_images("dnn_timing=false");
  EXPECT_FALSE(std::filesystem::exists(cache));
  std::string choices[2];
  for (std::string& text : choices) {
    run_images("dnn_timing=true");
    for (const auto& entry : std::filesystem::directory_iterator(cache))
      if (const Bytes file = read(entry.path()); entry.path().extension() == ".txt")
        text.assign(file.begin(), file.end());
  }
  unsetenv("GODWIT_CACHE");
  EXPECT_EQ(count_of("\tconv2d ", choices[0]), 17);
  EXPECT_EQ(choices[1], choices[0]);
}

TEST_F(CudaRun, AProfilerShowsEachForwardAndBackwardPass) {
  run_texts("tf32=false");
  const auto& ended = emulated_nvtx::ended;
  EXPECT_EQ(std::count(ended.begin(), ended.end(), "forward"), 2 * 2);
  EXPECT_EQ(std::count(ended.begin(), ended.end(), "backward"), 2 * 2);
}

}  // namespace cuda_run_test
}  // namespace godwit::apps
