// Ranks on GPUs: device assignment, ordering of memory accesses between ranks, and overlap of exchange and backward.
#include <gmock/gmock.h>

#include <mutex>
#include <set>

#include "comm/buckets/scheduler.h"
#include "comm/transport/local.h"
#include "engine/context.h"
#include "tests/comm/table.h"
#include "tests/support.h"

namespace godwit {
namespace device_ranks_test {

using ::testing::HasSubstr;
using test::random_tensor;

const Placement kOneGpu{"cuda:0", false, false};

TEST(Placement, OnTheCpuNeedsNothing) {
  EXPECT_EQ(device_of({}, 5, 8), kCpu);
  EXPECT_FALSE(exchanges_by_nccl({}, 1));
}

TEST(Placement, WithoutAGpuReportsTheReasonOnce) {
  if (cuda_devices() > 0) GTEST_SKIP() << "this machine has a GPU";
  for (const char* device : {"cuda", "cuda:0"})
    EXPECT_EQ(error_of([&] { run_local({4, 1}, [](Communicator&) {}, {.placement = {device}}); }),
              "cuda:0: " + why_no_cuda());
}

class DeviceRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << why_no_cuda();
  }
};

TEST_F(DeviceRanks, MoreRanksThanGpusNeedTheSharingOption) {
  const int gpus = cuda_devices(), many = 2 * gpus + 1;
  const std::string text = error_of([&] { run_local({many, 1}, [](Communicator&) {}, {.placement = {"cuda"}}); });
  EXPECT_THAT(text, HasSubstr(std::to_string(many) + " workers on this machine, but " + std::to_string(gpus) + " GPU"));
  EXPECT_THAT(text, HasSubstr("--set share_gpu=true"));
  EXPECT_FALSE(text.starts_with("rank")) << "the error must precede the start of the ranks: " << text;
  EXPECT_EQ(device_of({"cuda", true}, gpus, many), cuda_device(0));
  EXPECT_EQ(device_of({"cuda"}, gpus - 1, gpus), cuda_device(gpus - 1));
  EXPECT_EQ(device_of({"cuda:0"}, 3, many), cuda_device(0));
  EXPECT_FALSE(exchanges_by_nccl({"cuda", true}, many));
  EXPECT_FALSE(exchanges_by_nccl({"cuda:0"}, 2)) << "NCCL refuses two ranks on one GPU";
  EXPECT_THAT(error_of([&] { device_of({"cuda:" + std::to_string(gpus)}, 0, 1); }), HasSubstr("numbered from 0"));
}

TEST_F(DeviceRanks, HaveTheirOwnStreams) {
  std::mutex mutex;
  std::set<CudaContext*> contexts;
  run_local({3, 1},
            [&](Communicator& comm) {
              EXPECT_EQ(context().device, cuda_device(0));
              EXPECT_EQ(context().rank, comm.rank);
              {
                const std::lock_guard lock(mutex);
                contexts.insert(context().cuda.get());
              }
              comm.world->barrier("streams exist");
            },
            {.placement = kOneGpu});
  EXPECT_EQ(contexts.size(), 3u);
}

TEST_F(DeviceRanks, DisagreeIfOneRankUsesTheCpu) {
  const std::string text = error_of([] {
    run_local({3, 1},
              [](Communicator& comm) {
                const Tensor x({6}, DType::f32, comm.rank == 1 ? kCpu : cuda_device(0));
                comm.world->all_reduce(x, Reduce::sum, "mixed");
              },
              {.placement = kOneGpu});
  });
  EXPECT_THAT(text, HasSubstr("rank 0 calls all_reduce in phase 'mixed' of 24 bytes float32 on cuda:0"));
  EXPECT_THAT(error_of([] {
                run_local({1, 1},
                          [](Communicator& comm) {
                            const Tensor x({6}), y({6}, DType::f32, kCpu);
                            comm.world->all_gather(x, y, "mixed");
                          },
                          {.placement = kOneGpu});
              }),
              HasSubstr("all_gather: in is on cuda:0, out on cpu"));
}

// Peers must read the last values that a rank wrote, and those values must not be overwritten while peers read them.
// Each stream has much queued work when the ranks meet, and the memory of each round is freed immediately.
TEST_F(DeviceRanks, ReadTheLastValuesOfPeers) {
  constexpr int64_t n = 1 << 16;
  constexpr int kRounds = 10;
  run_local({4, 1},
            [](Communicator& comm) {
              for (int round = 0; round < kRounds; ++round) {
                const Tensor own({n}), all({4 * n});
                for (int pass = 0; pass <= 8; ++pass) own.fill(1000 * round + 10 * comm.rank + (8 - pass));
                comm.world->all_gather(own, all, "gather");
                own.fill(-1);
                comm.world->all_reduce(own, Reduce::sum, "reduce");
                ASSERT_EQ(own.item(n - 1), -4);
                for (int peer = 0; peer < 4; ++peer) ASSERT_EQ(all.item((peer + 1) * n - 1), 1000 * round + 10 * peer);
              }
            },
            {.placement = kOneGpu});
}

// Three steps whose update sets a parameter to the mean of the ranks' gradients.
std::vector<float> trained(const Placement& placement) {
  constexpr int64_t n = 70001;
  std::vector<float> result;
  run_local({4, 1},
            [&](Communicator& comm) {
              const Var a(Tensor::full({n}, 1), true), b(Tensor::full({n}, 2), true);
              Buckets buckets({{"a", a, true}, {"b", b, true}}, {.first_bytes = 1, .bytes = 1, .alignment = 4});
              Scheduler scheduler(buckets, [&](Bucket& bucket) {
                const Tensor before = bucket.grad.clone();
                comm.world->all_reduce(bucket.grad, Reduce::mean, "mean");
                bucket.param.copy_from(bucket.grad);
                comm.world->broadcast(before, 0, "copies");
              });
              for (int step = 0; step < 3; ++step) {
                const auto with_gradient = [&](const Var& w, uint64_t seed) {
                  return Var::result(Tensor::full({1}, 0), {w}, [dw = w.gradient(), seed, &comm](const Tensor&) {
                    const Tensor g = dw.target();
                    g.copy_from(random_tensor<float>(seed, comm.rank, g.numel()));
                    dw.add(g);
                  });
                };
                scheduler.begin_step();
                scheduler.backward(with_gradient(a, 2 * static_cast<uint64_t>(step)));
                scheduler.finish_step();
                const Tensor seen = b.value().clone();  // on the stream of the backward pass
                EXPECT_EQ(seen.item(n - 1), 0) << "b has no gradient";
              }
              if (comm.rank == 3) result = a.value().to_vector<float>();
            },
            {.placement = placement});
  return result;
}

TEST_F(DeviceRanks, SchedulerMatchesTheCpuBitForBit) { EXPECT_EQ(trained(kOneGpu), trained({})); }

TEST_F(DeviceRanks, CommunicationHasItsOwnStream) {
  run_local({1, 1},
            [](Communicator&) {
              CudaContext* const compute = context().cuda.get();
              Stream stream;
              constexpr int64_t n = 1 << 17;
              const Tensor x = Tensor::zeros({n});
              double seen = 0;
              for (int i = 1; i <= 50; ++i) x.fill(i);
              stream.submit([&] {
                EXPECT_NE(context().cuda.get(), compute);
                EXPECT_EQ(context().device, cuda_device(0));
                seen = x.item(n - 1);
                for (int i = 1; i <= 50; ++i) x.fill(-i);
              });
              stream.wait();
              EXPECT_EQ(x.item(n - 1), -50);
              EXPECT_EQ(seen, 50);
            },
            {.placement = kOneGpu});
}

}  // namespace device_ranks_test
}  // namespace godwit
