#include <gtest/gtest.h>

#include "comm/transport/local.h"
#include "optim/data_parallel.h"
#include "optim/sgd.h"
#include "tests/support.h"

namespace godwit {
namespace own_exchange_test {

// Sets every rank's gradient to 2.
class Twos : public Exchange {
 public:
  void mean(Bucket& bucket, Communicator&, int64_t) override { bucket.grad.range(0, bucket.numel).fill(2); }
};

TEST(OwnExchange, ReplacesTheConfiguredExchange) {
  run_local({2, 1}, [](Communicator& comm) {
    const Var x(Tensor::zeros({3}), true);
    DataParallelOptions options{.optimizer = Sgd::Options{.weight_decay = 0}};
    uint64_t seed = 0;
    options.make_exchange = [&](const Buckets& buckets, const Communicator&, uint64_t given) {
      EXPECT_EQ(buckets.numel(), 3);
      seed = given;
      return std::make_unique<Twos>();
    };
    options.seed = 77;
    DataParallel replica({{"x", x}}, comm, options);
    EXPECT_EQ(seed, 77u);
    replica.step(Var::result(Tensor::full({1}, 0), {x}, [](const Tensor&) {}), 0.25);
    EXPECT_EQ(x.value().to_vector<float>(), std::vector<float>(3, -0.5f));

    options.optimizer = "birder";
    EXPECT_NE(error_of([&] {
                DataParallel({{"x", Var(Tensor::zeros({3}), true)}}, comm, options);
              }).find("birder: communicates itself and takes no exchange"),
              std::string::npos);
    const DataParallelOptions named{.exchange = "topk"};  // with the default optimizer
    EXPECT_NE(error_of([&] {
                DataParallel({{"x", Var(Tensor::zeros({3}), true)}}, comm, named);
              }).find("birder: communicates itself and takes no exchange, got 'topk'"),
              std::string::npos);
  });
}

// An exchange of the program may need whole parameters, so no shard divides one.
TEST(OwnExchange, HybridShardsAreWholeParameters) {
  run_local({1, 2}, [](Communicator& comm) {
    DataParallelOptions options{.optimizer = "sgd"};
    options.exchange.set("sharding", "hybrid");
    options.make_exchange = [](const Buckets&, const Communicator&, uint64_t) { return std::make_unique<Twos>(); };
    const DataParallel replica(
        {{"a", Var(Tensor::zeros({100}), true)}, {"b", Var(Tensor::zeros({40}), true)}}, comm, options);
    EXPECT_EQ(replica.buckets()[0].shards[1].begin, 40) << "the last parameter comes first";
  });
}

}  // namespace own_exchange_test
}  // namespace godwit
