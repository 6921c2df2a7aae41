#include "comm/compress/wire/sign_bits.h"
#include "tests/comm/exchange/exchange_harness.h"
#include "tests/support.h"

namespace godwit {
namespace signsgd_test {

using test::ExchangePlan;
using test::ExchangeRun;
using test::kRanks;
using test::Values;

// +1 if at least half of the workers have a gradient >= 0. A tie gives +1; a gradient of 0 votes +1.
TEST(SignSgd, IsAMajorityVote) {
  for (const Topology& topology : kRanks) {
    ExchangePlan plan{.config = "signsgd", .topology = topology};
    const ExchangeRun run = test::run_exchange(plan);
    Values x(static_cast<size_t>(plan.d()));
    int ties = 0;
    const int world = topology.world();
    float* values = x.data();
    for (int64_t step = 1; step <= plan.steps; ++step) {
      const float* mean = run.means[static_cast<size_t>(step) - 1].data();
      for (int64_t i = 0, d = plan.d(); i < d; ++i) {
        int votes = 0;
        for (int rank = 0; rank < world; ++rank) votes += test::gradient(rank, step, i, values[i]) >= 0 ? 1 : -1;
        const float sign = votes >= 0 ? 1 : -1;
        ties += votes == 0;
        if (mean[i] != sign) FAIL() << "step " << step << ", element " << i << ": " << mean[i] << ", not " << sign;
        values[i] = values[i] - test::kLr * sign;
      }
    }
    EXPECT_EQ(ties > 0, topology.world() % 2 == 0);
  }
}

TEST(SignSgd, BytesPerRankEqualTheFormula) {
  for (const Topology& topology : kRanks)
    for (const int64_t d : {1, 33, 5000}) {
      ExchangePlan plan{.config = "signsgd", .topology = topology, .shapes = {{d}}, .steps = 2};
      const int64_t n = topology.nodes, m = topology.workers_per_node, world = n * m;
      const int64_t segment = (d + 32 * world - 1) / (32 * world) * 4;  // bytes of one segment's sign bits
      for (const CommCount& sent : test::run_exchange(plan).sent) {
        EXPECT_EQ(sent.bytes_intra, 2 * 2 * (m - 1) * segment);
        EXPECT_EQ(sent.bytes_inter, 2 * 2 * (n - 1) * m * segment);
      }
    }
}

TEST(SignSgd, ResultsDoNotDependOnBucketsOrThreads) {
  ExchangePlan plan{.config = "signsgd", .topology = {2, 2}, .shapes = {{300000}, {7}}, .steps = 2};
  const ExchangeRun expected = test::run_exchange(plan);
  plan.bucket_bytes = 1 << 30, plan.threads = 5;
  EXPECT_EQ(test::run_exchange(plan).means, expected.means);
}

TEST(SignSgd, NonFiniteGradientsNameStepAndParameter) {
  const std::string error = error_of([] {
    run_local({3, 1}, [](Communicator& comm) {
      Buckets buckets({{"w", Var(Tensor::zeros({5000}), true), true}}, {.alignment = 96});
      if (comm.rank == 2) buckets[0].grad.data<float>()[4999] = NAN;
      make_exchange("signsgd", buckets, comm, 1)->mean(buckets[0], comm, 7);
    });
  });
  EXPECT_NE(error.find("signsgd: step 7: the gradient of 'w' is nan at element 4999"), std::string::npos) << error;
}

TEST(SignSgd, RefusesUnalignedBucketsAndOtherTypes) {
  run_local({2, 1}, [](Communicator& comm) {
    Buckets unaligned({{"w", Var(Tensor::zeros({5}), true), true}}, {.alignment = 32});
    Buckets wide({{"w", Var(Tensor::zeros({5}, DType::f64), true), true}}, {.alignment = 64});
    EXPECT_NE(error_of([&] { make_exchange("signsgd", unaligned, comm, 1); }).find("32·2"), std::string::npos);
    EXPECT_NE(error_of([&] { make_exchange("signsgd", wide, comm, 1); }).find("float64"), std::string::npos);
  });
}

TEST(SignBits, MajorityEqualsPlainCounting) {
  RandomStream random(12, Purpose::test);
  for (const int64_t senders : {1, 2, 3, 4, 7, 8, 9, 16, 33, 100})
    for (const int64_t n : {1, 31, 32, 33, 500, 1024, 1537}) {
      std::vector<uint32_t> words(static_cast<size_t>(senders * sign_words(n)));
      for (uint32_t& word : words) word = (random.next() & random.next()) | (random.below(2) ? random.next() : 0);
      std::vector<uint32_t> votes(static_cast<size_t>(sign_words(n)) + 1, 0xDEADBEEF);
      majority_signs(Cpu{}, words.data(), senders, votes.data(), n);
      EXPECT_EQ(votes.back(), 0xDEADBEEF);
      const int64_t stride = sign_words(n);
      const uint32_t *from = words.data(), *voted = votes.data();
      for (int64_t i = 0; i < 32 * stride; ++i) {
        int64_t ones = 0;
        for (int64_t s = 0; s < senders; ++s) ones += from[s * stride + i / 32] >> (i % 32) & 1;
        if ((voted[i / 32] >> (i % 32) & 1) != (i < n && 2 * ones >= senders ? 1u : 0u))
          FAIL() << senders << " senders, value " << i << " of " << n << ": the vote is wrong";
      }
    }
}

}  // namespace signsgd_test
}  // namespace godwit
