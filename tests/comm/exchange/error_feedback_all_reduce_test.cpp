#include "comm/exchange/error_feedback_all_reduce.h"

#include <gtest/gtest.h>

#include <mutex>
#include <numeric>

#include "comm/transport/local.h"
#include "engine/hash.h"
#include "tests/comm/table.h"
#include "tests/comm/exchange/exchange_harness.h"
#include "tests/comm/exchange/sign_server.h"
#include "tests/support.h"

namespace godwit {
namespace error_feedback_all_reduce_test {

struct Plan {
  Topology topology{};
  std::vector<int64_t> sizes{100, 1, 64, 152};
  ErrorFeedbackOptions options{.scale_block = 32};
  int64_t steps = 30;
  int64_t bucket_bytes = 400;
  int threads = 1;

  int64_t d() const { return std::accumulate(sizes.begin(), sizes.end(), int64_t{0}); }
};

// Values of magnitudes from 1e-3 to 1e3, exact in float32; some are always 0.
float value_of(int rank, int64_t step, int64_t element) {
  if (element % 13 == 5) return 0;
  const float u = test::noise(rank, step, element);
  const float scale = element % 7 == 0 ? 1e-3f : element % 7 == 1 ? 1e3f : 1.0f;
  return scale * (u - 0.45f);
}

struct Result {
  std::vector<std::vector<float>> means;  // of rank 0, by step
  std::vector<std::vector<float>> e;      // by rank
  std::vector<float> server_e;
  std::vector<CommCount> sent;  // per rank, over both phases
};

Result run(const Plan& plan) {
  Result result;
  std::mutex mutex;
  const auto world = static_cast<size_t>(plan.topology.world()), d = static_cast<size_t>(plan.d());
  result.e.assign(world, std::vector<float>(d));
  result.server_e.assign(d, NAN);
  result.sent.resize(world);
  std::vector<uint64_t> hashes(world);
  run_local(plan.topology,
            [&](Communicator& comm) {
              std::vector<Parameter> parameters;
              for (const int64_t size : plan.sizes)
                parameters.push_back({"p" + std::to_string(parameters.size()), Var(Tensor::zeros({size}), true)});
              Buckets buckets(parameters, {plan.bucket_bytes, plan.bucket_bytes, 32 * plan.topology.world()});
              ErrorFeedbackAllReduce collective("test", plan.options, buckets, comm);
              Hash hash;
              for (int64_t step = 1; step <= plan.steps; ++step) {
                std::vector<float> mean;
                for (Bucket& bucket : buckets) {
                  float* g = bucket.grad.data<float>();
                  const int64_t begin = bucket.begin, n = bucket.numel, padded = bucket.padded_numel();
                  for (int64_t i = 0; i < n; ++i) g[i] = value_of(comm.rank, step, begin + i);
                  collective.mean(bucket, bucket.grad, bucket.grad, comm, step);
                  for (int64_t i = n; i < padded; ++i)
                    if (g[i] != 0) ADD_FAILURE() << "padding must be 0, is " << g[i];
                  hash.add(bucket.grad, bucket.numel);
                  const auto values = bucket.grad.range(0, bucket.numel).to_vector<float>();
                  mean.insert(mean.end(), values.begin(), values.end());
                }
                if (comm.rank == 0) result.means.push_back(mean);
              }
              const auto rank = static_cast<size_t>(comm.rank);
              std::lock_guard lock(mutex);
              hashes[rank] = hash.value();
              for (const StateTensor& part : collective.state()) {
                EXPECT_FALSE(part.replicated);
                auto& to = part.name == "e" ? result.e[rank] : result.server_e;
                std::copy_n(part.values.data<float>(), part.values.numel(), to.begin() + part.begin);
              }
              for (const auto& [phase, count] : comm.stats->phases()) {
                EXPECT_TRUE(phase == "test/all_to_all" || phase == "test/all_gather") << phase;
                result.sent[rank].bytes_intra += count.bytes_intra;
                result.sent[rank].bytes_inter += count.bytes_inter;
                result.sent[rank].calls += count.calls;
              }
            },
            {.threads_per_rank = plan.threads});
  for (const uint64_t hash : hashes) EXPECT_EQ(hash, hashes[0]) << "means differ between ranks";
  return result;
}

// Compares bits with the float32 server. The float64 server uses the same signs and bounds the rounding of the state.
void compare(const Plan& plan) {
  SCOPED_TRACE(::testing::Message() << plan.topology.nodes << " nodes x " << plan.topology.workers_per_node
                                    << " workers, " << plan.d() << " values, blocks of " << plan.options.scale_block);
  const Result got = run(plan);
  const int world = plan.topology.world();
  const bool l2 = plan.options.scale == SignScale::l2_rms;
  std::vector<Segment> blocks = reference::blocks_of(plan.sizes, plan.options.scale_block), owners = blocks;
  if (plan.options.scale_block < 0) {  // one scale per sender: a worker's for all values, an owner's for its segment
    blocks = {{0, plan.d()}};
    owners.clear();
    const int64_t words = (plan.d() + 31) / 32;
    for (int i = 0; i < world; ++i) {
      const Segment own{32 * part_begin(words, world, i), std::min(plan.d(), 32 * part_begin(words, world, i + 1))};
      if (own.numel() > 0) owners.push_back(own);
    }
  }
  reference::SignServer<float> server(world, plan.d(), blocks, owners, l2);
  reference::SignServer<double> exact(world, plan.d(), blocks, owners, l2);
  for (int64_t step = 1; step <= plan.steps; ++step) {
    std::vector<std::vector<float>> z(static_cast<size_t>(world), std::vector<float>(static_cast<size_t>(plan.d())));
    std::vector<std::vector<double>> z64;
    for (int rank = 0; rank < world; ++rank) {
      std::vector<float>& values = z[static_cast<size_t>(rank)];
      float* to = values.data();
      for (int64_t j = 0, d = plan.d(); j < d; ++j) to[j] = value_of(rank, step, j);
      z64.emplace_back(values.begin(), values.end());
    }
    // Values are at most 1e3, errors a few times that. Each is rounded once per step, with a relative error of a few
    // 2⁻²⁴.
    const double slack = 2e-3 * static_cast<double>(step);
    const std::vector<float> mean = server.mean(z);
    const std::vector<double> mean64 = exact.mean(z64, &server, slack);
    ASSERT_EQ(got.means[static_cast<size_t>(step - 1)], mean) << "step " << step;
    const float* m = mean.data();
    const double* m64 = mean64.data();
    for (size_t j = 0, d = mean.size(); j < d; ++j)
      if (!(std::abs(m[j] - m64[j]) <= slack)) FAIL() << "step " << step << ": " << m[j] << ", in float64 " << m64[j];
  }
  EXPECT_EQ(got.e, server.e);
  if (world > 1) {
    EXPECT_EQ(got.server_e, server.server_e);
  }
}

TEST(ErrorFeedbackAllReduce, MatchesAServerOfWholeVectorsOnOneToEightRanks) {
  for (const Topology topology : {Topology{1, 1}, {2, 1}, {3, 1}, {2, 2}, {5, 1}, {2, 3}, {7, 1}, {4, 2}})
    compare({.topology = topology, .steps = topology.world() == 4 ? 200 : 50});
}

TEST(ErrorFeedbackAllReduce, EveryScaleAndBlockSizeMatchesTheServer) {
  for (const Topology topology : {Topology{1, 1}, {3, 1}, {2, 2}})
    for (const SignScale scale : {SignScale::l1_mean, SignScale::l2_rms})
      for (const int64_t block : {-1, 0, 1, 7, 4096}) {
        Plan plan{.topology = topology, .options = {scale, block}, .steps = 10, .bucket_bytes = 1 << 30};
        compare(plan);
        plan.sizes = {9000, 5, 4097};  // several tiles per block
        plan.steps = 2;  // the second step adds the errors of the first
        compare(plan);
      }
}

TEST(ErrorFeedbackAllReduce, Pitfall25FewerValuesThanRanksAndEmptyParameters) {
  for (const Topology topology : {Topology{3, 1}, {2, 3}, {8, 1}})
    for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{1}, {2, 3}, {5, 0, 2}, {33}})
      for (const int64_t block : {0, 1, 32})
        compare({.topology = topology, .sizes = sizes, .options = {.scale_block = block}});
}

TEST(ErrorFeedbackAllReduce, Pitfall14BucketSizeAndThreadsDoNotChangeABit) {
  for (const int64_t block : {0, 100, 4096}) {
    Plan plan{.topology = {2, 2}, .sizes = {40'000, 1, 7, 99'999, 31}, .options = {.scale_block = block}, .steps = 2};
    plan.bucket_bytes = 1 << 30;
    const Result whole = run(plan);
    for (const int64_t bytes : {4, 160'200})
      for (const int threads : {1, 3}) {
        plan.bucket_bytes = bytes;
        plan.threads = threads;
        const Result other = run(plan);
        EXPECT_EQ(other.means, whole.means) << bytes << " bytes per bucket, " << threads << " threads";
        EXPECT_EQ(other.e, whole.e);
        EXPECT_EQ(other.server_e, whole.server_e);
      }
  }
}

// Pitfall 8: with blocks of one value, C is the identity and the result is the dense mean, bit for bit.
TEST(ErrorFeedbackAllReduce, Pitfall8BlocksOfOneValueGiveTheDenseMean) {
  for (const Topology topology : {Topology{1, 1}, {3, 1}, {2, 3}, {4, 2}}) {
    const Plan plan{.topology = topology, .options = {.scale_block = 1}, .steps = 5};
    const Result got = run(plan);
    for (int64_t step = 1; step <= plan.steps; ++step)
      for (int64_t j = 0, d = plan.d(); j < d; ++j) {
        float sum = 0;
        for (int rank = 0; rank < topology.world(); ++rank) sum += value_of(rank, step, j);
        EXPECT_EQ(got.means[static_cast<size_t>(step - 1)][static_cast<size_t>(j)],
                  sum / static_cast<float>(topology.world()));
      }
    for (const std::vector<float>& e : got.e) EXPECT_EQ(e, std::vector<float>(e.size()));
  }
}

// Conservation: Σ means + remaining errors = Σ mean inputs.
TEST(ErrorFeedbackAllReduce, ConservesTheSumOfTheInputs) {
  const Plan plan{.topology = {2, 2}, .steps = 200};
  const Result got = run(plan);
  for (size_t j = 0; j < static_cast<size_t>(plan.d()); ++j) {
    double in = 0, out = static_cast<double>(got.server_e[j]);
    for (int rank = 0; rank < 4; ++rank) {
      for (int64_t step = 1; step <= plan.steps; ++step)
        in += static_cast<double>(value_of(rank, step, static_cast<int64_t>(j))) / 4;
      out += static_cast<double>(got.e[static_cast<size_t>(rank)][j]) / 4;
    }
    for (const std::vector<float>& mean : got.means) out += static_cast<double>(mean[j]);
    EXPECT_NEAR(in, out, 200 * 1e3 * 0x1p-22) << "one rounding of values up to 4e3 per step";
  }
}

TEST(ErrorFeedbackAllReduce, BytesEqualTheFormula) {
  for (const auto& [n, m] : {std::pair{1, 1}, {1, 3}, {2, 1}, {3, 2}, {8, 1}, {2, 4}})
    for (const int64_t d : {1, 97, 4099, 65536})
      for (const int64_t block : {-1, 0, 64, 4096}) {
        const int64_t W = n * m;
        const Plan plan{.topology = {n, m},
                        .sizes = {d},
                        .options = {.scale_block = block},
                        .steps = d < 65536 ? 2 : 1,
                        .bucket_bytes = 1 << 30};
        // The largest segment: even splits, moved to the nearest block boundary.
        int64_t longest = 0, scales = 1;
        std::vector<int64_t> ends;
        if (block < 0) longest = std::min(d, 32 * (((d + 31) / 32 + W - 1) / W));
        if (block == 0) longest = d;
        if (block > 0) {
          scales = 0;
          int64_t before = 0;
          for (int64_t i = 1; i <= W; ++i) {
            const int64_t even = part_begin(d, static_cast<int>(W), static_cast<int>(i)), down = even / block * block;
            const int64_t up = std::min(d, down + block);
            const int64_t cut = even - down < up - even ? down : even == down ? down : up;
            longest = std::max(longest, cut - before);
            scales = std::max(scales, (cut - before + block - 1) / block);
            before = cut;
          }
        }
        const int64_t message = 4 * scales + 4 * ((longest + 31) / 32);
        for (const CommCount& sent : run(plan).sent) {
          EXPECT_EQ(sent.bytes_intra, plan.steps * 2 * (m - 1) * message) << d << " values, blocks of " << block;
          EXPECT_EQ(sent.bytes_inter, plan.steps * 2 * (n - 1) * m * message) << d << " values, blocks of " << block;
        }
        if (d == 65536 && block == 4096 && 16 % W == 0) {  // whole blocks per segment: the formula for even segments
          EXPECT_EQ(2 * (W - 1) * message, 2 * (W - 1) * (4 * d / (32 * W) + 4 * 16 / W));
        }
      }
}

// Pitfall 13: for a vector with heavy tails, the scale mean|x| is contractive and the root mean square is not.
TEST(ErrorFeedbackAllReduce, Pitfall13MeanAbsoluteScaleIsContractiveOnHeavyTails) {
  std::vector<float> y(4096);
  for (size_t i = 0; i < y.size(); ++i) y[i] = i % 100 == 0 ? (i % 200 == 0 ? 1.0f : -1.0f) : 1e-4f;
  const auto relative_error = [&](SignScale scale) {
    std::vector<float> e(y.size());
    SignTiles tiles;
    tiles.add(0, 4096, 32, 0, 0);
    std::vector<uint32_t> words(1 + 128);
    EXPECT_EQ(first_fault(compress_signs(Cpu{}, y.data(), e.data(), tiles, scale, words.data())), -1);
    double error = 0, size = 0;
    for (size_t i = 0; i < y.size(); ++i) error += std::pow(e[i], 2), size += std::pow(y[i], 2);
    return error / size;
  };
  EXPECT_LT(relative_error(SignScale::l1_mean), 1);
  EXPECT_GT(relative_error(SignScale::l2_rms), 1.5);
}

// Pitfall 26: sign bits hide NaN; scales do not.
TEST(ErrorFeedbackAllReduce, Pitfall26NamesTheNonFiniteParameter) {
  for (const int64_t block : {0, 8})
    for (const float bad : {NAN, -INFINITY, 3e38f}) {
      const std::string error = error_of([&] {
        run_local({2, 2}, [&](Communicator& comm) {
          Buckets buckets({{"a", Var(Tensor::zeros({50}), true)}, {"b", Var(Tensor::zeros({9}), true)}}, {});
          ErrorFeedbackAllReduce collective("test", {.scale = SignScale::l2_rms, .scale_block = block}, buckets, comm);
          if (comm.rank == 3) buckets[0].grad.data<float>()[9 + 20] = bad;
          collective.mean(buckets[0], buckets[0].grad, buckets[0].grad, comm, 7);
        });
      });
      EXPECT_NE(error.find("test: step 7: the value sent for 'a', including the error feedback, is "),
                std::string::npos)
          << error;
      if (!std::isfinite(bad)) {
        EXPECT_NE(error.find("at element 20"), std::string::npos) << error;
      } else {
        EXPECT_NE(error.find("its scale is not finite"), std::string::npos) << error;
      }
    }
}

TEST(ErrorFeedbackAllReduce, RefusesInvalidInputs) {
  const auto refusal = [](const ErrorFeedbackOptions& options, DType dtype, int64_t bucket_bytes) {
    return error_of([&] {
      run_local({1, 1}, [&](Communicator& comm) {
        const Buckets buckets(
            {{"a", Var(Tensor::zeros({300'000}, dtype), true)}, {"b", Var(Tensor::zeros({9}, dtype), true)}},
            {bucket_bytes, bucket_bytes, 32});
        ErrorFeedbackAllReduce("test", options, buckets, comm);
      });
    });
  };
  EXPECT_NE(refusal({.scale_block = -2}, DType::f32, 1 << 20).find("the scale block is -2 values"), std::string::npos);
  const std::string whole = refusal({.scale_block = -1}, DType::f32, 1 << 20);
  EXPECT_NE(whole.find("it is in 2; set bucket.first_mib to 1.145 or more"), std::string::npos) << whole;
  EXPECT_NE(refusal({}, DType::f64, 1 << 20).find("float32"), std::string::npos);
}

}  // namespace error_feedback_all_reduce_test
}  // namespace godwit
