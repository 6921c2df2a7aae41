// Training steps of ResNet and BERT with CUDA graphs must match steps without graphs bit for bit.
#include <gtest/gtest.h>

#include <map>

#include "autograd/ops/softmax_cross_entropy.h"
#include "comm/transport/local.h"
#include "engine/context.h"
#include "engine/gpu.h"
#include "engine/graph.h"
#include "engine/philox.h"
#include "models/bert.h"
#include "models/llama.h"
#include "models/resnet.h"
#include "optim/data_parallel.h"

namespace godwit {
namespace cuda_graph_cache_test {

using How = CudaGraphCache::How;

struct Plan {
  bool graphs;
  int ranks = 1, micro_batches = 1;
  std::string optimizer = "adamw";
  DType dtype = DType::f32;
};

struct Outcome {
  std::vector<double> losses;
  std::vector<std::vector<float>> state;  // parameters and buffers
  std::vector<int64_t> overlapped;        // number of overlapped buckets per step
  bool operator==(const Outcome&) const = default;
};

constexpr int kSteps = 5;

// draw(random, micro_batch) writes a batch to the tensors that pass(micro_batch) reads.
template <class Draw, class Pass>
Outcome train(const Plan& plan, Communicator& comm, const nn::Module& model, const Draw& draw, const Pass& pass) {
  DataParallelOptions options{.optimizer = plan.optimizer};
  options.buckets.first_bytes = options.buckets.bytes = 64 << 10;
  DataParallel replica(model.parameters(), comm, options);
  std::unique_ptr<CudaGraphCache> graphs;
  if (plan.graphs) graphs = std::make_unique<CudaGraphCache>();
  Outcome outcome;
  std::vector<Tensor> losses(static_cast<size_t>(plan.micro_batches));  // replays write to the captured step's tensors
  int64_t peak = 0;
  for (int step = 0; step < kSteps; ++step) {
    replica.begin_step(0.01 / (1 + step), plan.micro_batches);
    for (int m = 0; m < plan.micro_batches; ++m) {
      const int micro_batch = step * plan.micro_batches + m;
      RandomStream random(5, Purpose::test, static_cast<uint32_t>(micro_batch), static_cast<uint32_t>(comm.rank));
      draw(random, micro_batch);
      Tensor& loss = losses[static_cast<size_t>(m)];
      const auto body = [&] {
        const Var of = pass(micro_batch);
        loss = of.value();
        replica.backward(of);
      };
      if (graphs) {
        const std::vector<int64_t> key{m == 0, m + 1 == plan.micro_batches};
        EXPECT_EQ(graphs->run(key, body), step == 0 ? How::eager : step == 1 ? How::captured : How::replayed);
      } else {
        body();
      }
      outcome.losses.push_back(loss.item());
    }
    EXPECT_TRUE(replica.finish_step());
    outcome.overlapped.push_back(replica.scheduler().overlapped());
    if (step == 2) peak = peak_gpu_bytes();
  }
  EXPECT_EQ(peak_gpu_bytes(), peak) << "replays must not allocate memory";
  for (const Bucket& bucket : replica.buckets()) outcome.state.push_back(bucket.param.to_vector<float>());
  for (const nn::NamedTensor& buffer : model.buffers()) outcome.state.push_back(buffer.tensor.to_vector<float>());
  return outcome;
}

template <class Body>
Outcome of_ranks(const Plan& plan, const Body& body) {
  Outcome first;
  run_local({plan.ranks, 1},
            [&](Communicator& comm) {
              const Outcome outcome = body(comm);
              if (comm.rank == 0) first = outcome;
            },
            // On one GPU: with NCCL, the step that is captured does not overlap.
            {.threads_per_rank = 1, .placement = {"cuda:0", /*share_gpu=*/true}});
  return first;
}

Outcome resnet(const Plan& plan) {
  return of_ranks(plan, [&](Communicator& comm) {
    ResNetConfig config = resnet_config("resnet20");
    config.num_classes = 5;
    config.dtype = plan.dtype;
    const auto model = make_resnet(config);
    const Tensor images({2, 8, 8, 3}), labels({2}, DType::i32, kCpu);
    const auto draw = [&](RandomStream& random, int) {
      std::vector<float> pixels(static_cast<size_t>(images.numel()));
      for (float& pixel : pixels) pixel = static_cast<float>(random.normal());
      images.copy_from(Tensor::of(pixels, images.shape()));
      for (int32_t& label : labels.span<int32_t>()) label = static_cast<int32_t>(random.below(5));
    };
    return train(plan, comm, *model, draw,
                 [&](int) { return ops::softmax_cross_entropy(model->forward(Var(images)), labels, 0.1); });
  });
}

// Includes dropout, whose random numbers depend on the micro-batch, and words that occur once, often, and as padding.
Outcome bert(const Plan& plan) {
  return of_ranks(plan, [&](Communicator& comm) {
    constexpr int64_t kTexts = 3, kLength = 12, kMasked = 5, kWords = 40;
    BertConfig config;
    config.vocab_size = kWords;
    config.hidden_size = 32;
    config.num_hidden_layers = config.num_attention_heads = 2;
    config.intermediate_size = 64;
    config.max_position_embeddings = kLength;
    config.dtype = plan.dtype;
    const auto model = make_bert<BertForPreTraining>(config);
    const auto ints = [](const Shape& shape) { return Tensor(shape, DType::i32, kCpu); };
    const TextInput input{ints({kTexts, kLength}), ints({kTexts, kLength}), Tensor({kTexts, kLength}, DType::u8, kCpu)};
    const Tensor positions = ints({kMasked}), words = ints({kMasked}), next = ints({kTexts}),
                 counter({1}, DType::u32, kCpu);
    const auto draw = [&](RandomStream& random, int micro_batch) {
      counter.data<uint32_t>()[0] = static_cast<uint32_t>(micro_batch);
      const auto fill = [&](const Tensor& x, uint32_t limit) {
        for (int32_t& value : x.span<int32_t>()) value = static_cast<int32_t>(random.below(limit));
      };
      fill(input.ids, 1 + random.below(kWords - 1));
      fill(input.token_type_ids, 2);
      fill(positions, kTexts * kLength);
      fill(words, kWords);
      fill(next, 2);
      for (int64_t i = 0; i < input.mask.numel(); ++i)
        input.mask.data<uint8_t>()[i] = i % kLength < 1 + random.below(kLength);
    };
    return train(plan, comm, *model, draw, [&](int micro_batch) {
      DropoutContext run{7, static_cast<uint32_t>(micro_batch), static_cast<uint32_t>(comm.rank)};
      if (plan.graphs) run = {.seed = 7, .step = 0, .rank = run.rank, .counter = counter.to(context().device)};
      return pretraining_loss(model->forward(input, positions, &run), words, next);
    });
  });
}

class CudaGraphCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << why_no_cuda();
  }
  template <class Train>
  static void expect_same(Plan plan, const Train& by) {
    SCOPED_TRACE(detail::concat(plan.ranks, " ranks, ", plan.micro_batches, " micro-batches, ", plan.optimizer, ", ",
                                plan.dtype));
    plan.graphs = false;
    const Outcome expected = by(plan);
    plan.graphs = true;
    const Outcome found = by(plan);
    EXPECT_EQ(found.losses, expected.losses);
    EXPECT_EQ(found.overlapped, expected.overlapped);
    EXPECT_GE(expected.overlapped[0], 2);
    EXPECT_TRUE(found.state == expected.state);
    EXPECT_NE(expected.losses[kSteps - 1], expected.losses[kSteps - 2]);
  }
};

TEST_F(CudaGraphCacheTest, ResNetTrainsAsWithoutGraphs) {
  expect_same({.graphs = true}, resnet);
  expect_same({.graphs = true, .ranks = 2, .optimizer = "birder"}, resnet);
  expect_same({.graphs = true, .micro_batches = 2, .optimizer = "sgdm", .dtype = DType::bf16}, resnet);
}

TEST_F(CudaGraphCacheTest, BertWithDropoutTrainsAsWithoutGraphs) {
  expect_same({.graphs = true}, bert);
  expect_same({.graphs = true, .ranks = 2, .optimizer = "birder", .dtype = DType::bf16}, bert);
}

// A longer text needs a longer table of rotary positions, which replays of a shorter text must not overwrite.
TEST_F(CudaGraphCacheTest, LlamaReadsTextsOfTwoLengths) {
  const ContextGuard guard(context_on(cuda_device(0)));
  const NoGrad no_grad;
  constexpr int64_t kShort = 64, kLong = 128, kWidth = 8;
  const LlamaConfig config{.vocab_size = 11,
                           .max_position_embeddings = kLong,
                           .hidden_size = kWidth,
                           .intermediate_size = 6,
                           .num_hidden_layers = 1,
                           .num_attention_heads = 1};
  const auto plain = make_llama(config), captured = make_llama(config);  // equal weights
  struct Text {
    Tensor ids, hidden;
  };
  std::map<int64_t, Text> texts;
  RandomStream random(5, Purpose::test, 0, 0);
  for (const int64_t length : {kShort, kLong}) {
    const Tensor ids({1, length}, DType::i32, kCpu);
    for (int32_t& id : ids.span<int32_t>()) id = static_cast<int32_t>(random.below(11));
    texts[length] = {ids, Tensor({length, kWidth})};
  }
  CudaGraphCache graphs;
  using Run = std::pair<int64_t, How>;
  for (const auto& [length, how] : {Run{kShort, How::eager},
                                    {kShort, How::captured},
                                    {kLong, How::eager},
                                    {kShort, How::replayed},
                                    {kLong, How::captured},
                                    {kShort, How::replayed},
                                    {kLong, How::replayed}}) {
    const Text& text = texts.at(length);
    EXPECT_EQ(graphs.run({length}, [&] { text.hidden.copy_from(captured->forward(text.ids).value()); }), how);
    EXPECT_EQ(text.hidden.to_vector<float>(), plain->forward(text.ids).value().to_vector<float>())
        << "length " << length << ", how " << static_cast<int>(how);
  }
}

}  // namespace cuda_graph_cache_test
}  // namespace godwit
