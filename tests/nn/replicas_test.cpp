#include "nn/replicas.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/ops/pooling/global_avg_pool.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "comm/transport/local.h"
#include "engine/philox.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "tests/support.h"

namespace godwit {
namespace replicas_test {

struct Net : nn::Module {
  nn::Conv2d conv1{3, 6, 3, {}, DType::f64}, conv2{6, 6, 1, {}, DType::f64};
  nn::BatchNorm2d bn1{6, DType::f64, 0.7}, bn2{6, DType::f64};
  nn::Linear fc{6, 4, DType::f64};

  Net() {
    add("conv1", conv1);
    add("bn1", bn1);
    add("conv2", conv2);
    add("bn2", bn2);
    add("fc", fc);
    nn::initialize(*this, 3);
  }
  Var forward(const Var& x) const {
    const Var h = bn1(conv1(x), true);
    return fc(ops::global_avg_pool(bn2.add_relu(conv2(h), h)));
  }
};

// Image i of a batch that all worlds share. The images differ in brightness, so each rank has different statistics.
struct Images {
  Tensor x, labels;

  Images(int64_t begin, int64_t count) : x({count, 5, 5, 3}, DType::f64), labels({count}, DType::i32) {
    for (int64_t i = 0; i < count; ++i) {
      RandomStream random(1, Purpose::test, static_cast<uint32_t>(begin + i));
      for (double& value : x.rows(i, 1).span<double>()) value = 3.0 * static_cast<double>(begin + i) + random.normal();
      labels.data<int32_t>()[i] = static_cast<int32_t>(random.below(4));
    }
  }
};

// Logits and input gradients of all images in order; parameter gradients summed over the ranks; running statistics of
// every rank.
struct Result {
  std::vector<double> logits, dx, parameters;
  std::vector<std::vector<double>> buffers;
};

void append(std::vector<double>& to, const Tensor& x) {
  for (const double value : x.span<double>()) to.push_back(value);
}

// Rank r has shares[r] images, and its mean loss is weighted by that count. Two training steps without an update.
Result train(const std::vector<int64_t>& shares, bool sync = true) {
  int64_t images = 0;
  for (const int64_t share : shares) images += share;
  std::vector<Result> ranks(shares.size());
  run_local({static_cast<int>(shares.size()), 1}, [&](Communicator& comm) {
    const auto r = static_cast<size_t>(comm.rank);
    int64_t begin = 0;
    for (size_t before = 0; before < r; ++before) begin += shares[before];
    Net net;
    if (sync) nn::synchronize_batch_norm(net, comm.compute);
    const Images own(begin, shares[r]);
    Result& result = ranks[r];
    for (int step = 0; step < 2; ++step) {
      const Var x(own.x, true);
      const Var logits = net.forward(x);
      backward(ops::softmax_cross_entropy(logits, own.labels),
               static_cast<double>(shares[r]) / static_cast<double>(images));
      append(result.logits, logits.value());
      append(result.dx, x.grad());
    }
    for (const Parameter& p : net.parameters()) append(result.parameters, p.var.grad());
    result.buffers.emplace_back();
    for (const nn::NamedTensor& buffer : net.buffers()) append(result.buffers[0], buffer.tensor);
    EXPECT_EQ(comm.stats->phase("batch_norm").calls, sync ? 8 : 0) << "two steps, two layers, forward and backward";
  });
  Result all;
  const auto half = [](const std::vector<double>& v, int step) {
    const auto n = std::ssize(v) / 2;
    return std::vector<double>(v.begin() + step * n, v.begin() + (step + 1) * n);
  };
  for (int step = 0; step < 2; ++step)
    for (const Result& rank : ranks) {
      for (const double value : half(rank.logits, step)) all.logits.push_back(value);
      for (const double value : half(rank.dx, step)) all.dx.push_back(value);
    }
  all.parameters.resize(ranks[0].parameters.size());
  for (const Result& rank : ranks) {
    for (size_t i = 0; i < all.parameters.size(); ++i) all.parameters[i] += rank.parameters[i];
    all.buffers.push_back(rank.buffers[0]);
  }
  return all;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// float64, values of order 1 after the first layer, and sums of a few hundred terms: rounding stays far below 1e-10.
TEST(SynchronizeBatchNorm, RanksEqualOneRankWithAllImages) {
  const Result whole = train({6});
  for (const std::vector<int64_t>& shares : {std::vector<int64_t>{3, 3}, {2, 2, 2}, {1, 1, 1, 1, 1, 1}, {1, 4, 1}}) {
    const Result parts = train(shares);
    EXPECT_LT(largest_difference(parts.logits, whole.logits), 1e-10);
    EXPECT_LT(largest_difference(parts.dx, whole.dx), 1e-10);
    EXPECT_LT(largest_difference(parts.parameters, whole.parameters), 1e-10);
    for (const auto& buffers : parts.buffers) {
      EXPECT_LT(largest_difference(buffers, whole.buffers[0]), 1e-10);
      EXPECT_EQ(buffers, parts.buffers[0]) << "all ranks must have the same bits";
    }
  }
  const Result apart = train({3, 3}, /*sync=*/false);
  EXPECT_GT(largest_difference(apart.logits, whole.logits), 0.01) << "without it, ranks have different statistics";
}

TEST(SynchronizeBatchNorm, OneValuePerRankIsEnough) {
  run_local({2, 1}, [](Communicator& comm) {
    nn::BatchNorm2d norm(2);
    const Var x(Tensor::full({1, 1, 1, 2}, comm.rank));
    EXPECT_NE(error_of([&] { norm(x); }).find("more than one value"), std::string::npos);
    nn::synchronize_batch_norm(norm, comm.compute);
    const double y = norm(x).value().item(1);
    EXPECT_NEAR(y, (comm.rank - 0.5) / std::sqrt(0.25 + 1e-5), 1e-6);
    EXPECT_FLOAT_EQ(static_cast<float>(norm.buffers()[0].tensor.item()), 0.05f);
    EXPECT_FLOAT_EQ(static_cast<float>(norm.buffers()[1].tensor.item()), 0.9f + 0.1f * 0.5f) << "unbiased: 1/2";
    norm.train(false);
    comm.stats->reset();
    norm(x);
    EXPECT_EQ(comm.stats->total().calls, 0) << "evaluation must not communicate";
  });
}

TEST(SynchronizeBatchNorm, AFailingRankStopsTheOthers) {
  const std::string error = error_of([] {
    run_local({3, 1}, [](Communicator& comm) {
      nn::BatchNorm2d norm(2);
      nn::synchronize_batch_norm(norm, comm.compute);
      check(comm.rank != 1, "bad image");
      norm(Var(Tensor::zeros({1, 2, 2, 2})));
    });
  });
  EXPECT_EQ(error, "rank 1: bad image");
}

TEST(AverageBuffers, AveragesOverTheRanks) {
  run_local({3, 1}, [](Communicator& comm) {
    nn::BatchNorm2d norm(4);
    for (const nn::NamedTensor& buffer : norm.buffers()) buffer.tensor.fill(3.0 * comm.rank);
    nn::average_buffers(norm, *comm.world);
    for (const nn::NamedTensor& buffer : norm.buffers()) EXPECT_EQ(buffer.tensor.item(3), 3) << buffer.name;
  });
}

TEST(BroadcastBuffers, CopiesTheBuffersOfRank0) {
  run_local({3, 1}, [](Communicator& comm) {
    nn::BatchNorm2d norm(4);
    for (const nn::NamedTensor& buffer : norm.buffers()) buffer.tensor.fill(5.0 + comm.rank);
    nn::broadcast_buffers(norm, *comm.world);
    for (const nn::NamedTensor& buffer : norm.buffers()) EXPECT_EQ(buffer.tensor.item(3), 5) << buffer.name;
  });
}

}  // namespace replicas_test
}  // namespace godwit
