#include "comm/exchange/ef_signsgd.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "comm/transport/local.h"
#include "tests/comm/table.h"
#include "tests/comm/exchange/sign_server.h"
#include "tests/support.h"

namespace godwit {
namespace ef_signsgd_test {

using test::random_row;

// The means of every step on rank 0, and the state of all ranks by name and rank.
struct Exchanged {
  std::vector<std::vector<float>> means;
  std::map<std::pair<std::string, int>, std::vector<float>> state;
};

Exchanged exchanged(const ExchangeConfig& config, const Topology& topology, int64_t n, int64_t steps) {
  Exchanged result;
  std::mutex mutex;
  run_local(topology, [&](Communicator& comm) {
    Buckets buckets({{"w", Var(Tensor::zeros({n}), true)}}, {.alignment = 32 * topology.world()});
    const auto exchange = make_exchange(config, buckets, comm, 1);
    for (int64_t step = 1; step <= steps; ++step) {
      const std::vector<float> row = random_row<float>(static_cast<uint64_t>(step), comm.rank, n);
      std::copy(row.begin(), row.end(), buckets[0].grad.data<float>());
      exchange->mean(buckets[0], comm, step);
      if (comm.rank == 0) result.means.push_back(buckets[0].grad.range(0, n).to_vector<float>());
    }
    std::lock_guard lock(mutex);
    for (const StateTensor& part : exchange->state()) {
      auto& values = result.state[{part.name, part.name == "e" ? comm.rank : 0}];
      values.resize(static_cast<size_t>(n));
      std::copy_n(part.values.data<float>(), part.values.numel(), values.begin() + part.begin);
    }
  });
  return result;
}

TEST(EfSignSgd, MatchesAParameterServer) {
  for (const Topology topology : {Topology{1, 1}, {2, 1}, {3, 1}, {2, 2}, {5, 1}, {3, 2}, {7, 1}, {8, 1}})
    for (const SignScale scale : {SignScale::l1_mean, SignScale::l2_rms}) {
      constexpr int64_t n = 300;
      const int world = topology.world(), steps = world == 4 ? 200 : 50;
      const Exchanged got = exchanged(EfSignSgdOptions{.block_size = 64, .sign_scale = scale}, topology, n, steps);
      const std::vector<Segment> blocks = reference::blocks_of({n}, 64);
      reference::SignServer<float> server(world, n, blocks, blocks, scale == SignScale::l2_rms);
      for (int64_t step = 1; step <= steps; ++step) {
        std::vector<std::vector<float>> gradients;
        for (int rank = 0; rank < world; ++rank)
          gradients.push_back(random_row<float>(static_cast<uint64_t>(step), rank, n));
        ASSERT_EQ(got.means[static_cast<size_t>(step - 1)], server.mean(gradients)) << "step " << step;
      }
      for (int rank = 0; rank < world; ++rank)
        EXPECT_EQ(got.state.at({"e", rank}), server.e[static_cast<size_t>(rank)]);
      if (world > 1) {
        EXPECT_EQ(got.state.at({"server_e", 0}), server.server_e);
      }
    }
}

TEST(EfSignSgd, Pitfall8BlocksOfOneValueGiveTheDenseExchange) {
  for (const Topology topology : {Topology{1, 1}, {3, 1}, {2, 3}})
    EXPECT_EQ(exchanged(EfSignSgdOptions{.block_size = 1}, topology, 100, 3).means,
              exchanged("dense", topology, 100, 3).means);
}

TEST(EfSignSgd, RefusesUnknownScalesAndBlocks) {
  EXPECT_NE(error_of([] { ExchangeConfig("ef_signsgd").set("sign_scale", "l2_rm"); }).find("did you mean 'l2_rms'"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              exchanged(EfSignSgdOptions{.block_size = -3}, {1, 1}, 9, 1);
            }).find("ef_signsgd: block_size expects an integer of at least -1, got -3"),
            std::string::npos);
}

}  // namespace ef_signsgd_test
}  // namespace godwit
