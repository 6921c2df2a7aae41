#include "optim/birder.h"

#include <gtest/gtest.h>

#include "tests/optim/birder_reference.h"
#include "tests/optim/harness.h"

namespace godwit {
namespace birder_test {

using test::Plan;
using test::Trained;

Plan birder_plan(int nodes, int workers) {
  Plan plan;
  plan.config = Birder::Options{.lr = 0.01, .weight_decay = 0.1};
  plan.topology = {nodes, workers};
  return plan;
}

// Algorithm 1 with a parameter server that sees whole vectors: no shards, buckets, padding or bit words. Two copies run
// in parallel. The float32 copy performs the specified operations in the specified order and must agree in every bit. A
// free float64 copy would occasionally draw another sign (U between the two probabilities) and then follow another
// trajectory. The float64 copy therefore uses the signs of the float32 copy, checks that its own p would have drawn the
// same signs up to rounding, and bounds the state.
class ParameterServer {
 public:
  ParameterServer(const Plan& plan) : plan_(plan), d_(static_cast<size_t>(plan.d())) {
    const auto& o = plan.config.as<Birder::Options>();
    const bool naive = o.collective == Birder::Collective::all_gather;
    senders_ = naive ? plan.topology.world() : plan.topology.nodes;
    workers_per_sender_ = naive ? 1 : plan.topology.workers_per_node;
    options_.feedback = at_worker(o.error_feedback);
    server_feedback_ = at_server(o.error_feedback) && senders_ > 1;
    options_.beta = static_cast<float>(o.beta);
    options_.o = static_cast<float>(1 - o.beta);
    options_.eps = static_cast<float>(o.eps);
    options_.t0 = o.t0;
    options_.bf16_moments = o.moments == Birder::Moments::bf16;
    options_.int8_errors = o.errors == Birder::Errors::int8;
    if (o.compensate_nodes) options_.nodes = senders_;
    active.assign(d_, o.mask == Birder::Mask::none);
    quantizer_ = o.quantizer;
    for (size_t j = 0; j < d_; ++j) x.push_back(static_cast<float>(test::start_value(static_cast<int64_t>(j))));
    worker.assign(static_cast<size_t>(senders_), std::vector<reference::WorkerValue<float>>(d_));
    worker64.assign(static_cast<size_t>(senders_), std::vector<reference::WorkerValue<double>>(d_));
    server_e.assign(d_, 0);
    server_e64.assign(d_, 0);
  }

  void step(uint32_t t) {
    const auto& o = plan_.config.as<Birder::Options>();
    const float lr = static_cast<float>(o.lr);
    const float keep = static_cast<float>(1 - o.lr * o.weight_decay);
    for (size_t j = 0; j < d_; ++j) {
      const int64_t element = static_cast<int64_t>(j);
      int sum = 0;
      for (int s = 0; s < senders_; ++s) sum += worker_sign(s, j, t) ? 1 : -1;
      const float mean = static_cast<float>(sum) / static_cast<float>(senders_);
      if (!active[j]) {
        active[j] = sum > -senders_;  // updated from the next step on
        continue;
      }
      const float z = server_feedback_ ? mean + server_e[j] : mean;
      const birder::QuantizerRng rng{quantizer_, plan_.seed, t, Purpose::server_sign, 0, 0};
      const bool plus = senders_ == 1 ? sum > 0 : reference::quantize(z, rng, element);
      if (options_.int8_errors) server_e64[j] = static_cast<double>(server_e[j]);
      server_e64[j] += static_cast<double>(sum) / senders_ - (plus ? 1 : -1);
      server_e[j] = z - (plus ? 1.0f : -1.0f);
      if (options_.int8_errors)
        server_e[j] = reference::kept_error(server_e[j], random_word(plan_.seed, element, t, Purpose::server_sign, 0));
      x[j] = (keep * x[j]) - (plus ? lr : -lr);
    }
  }

  std::vector<float> x;
  std::vector<std::vector<reference::WorkerValue<float>>> worker;
  std::vector<std::vector<reference::WorkerValue<double>>> worker64;
  std::vector<float> server_e;
  std::vector<double> server_e64;
  std::vector<bool> active;
  bool worker_feedback() const { return options_.feedback; }
  bool server_feedback() const { return server_feedback_; }
  int senders() const { return senders_; }

 private:
  bool worker_sign(int sender, size_t j, uint32_t t) {
    const int64_t element = static_cast<int64_t>(j);
    float g = 0;  // the node's mean, summed in rank order
    for (int k = 0; k < workers_per_sender_; ++k) {
      g += static_cast<float>(plan_.gradient(sender * workers_per_sender_ + k, t, element, static_cast<double>(x[j])));
    }
    g /= static_cast<float>(workers_per_sender_);
    const birder::QuantizerRng rng{quantizer_, plan_.seed, t, Purpose::worker_sign, static_cast<uint32_t>(sender), 0};
    auto& value = worker[static_cast<size_t>(sender)][j];
    auto& value64 = worker64[static_cast<size_t>(sender)][j];
    if (options_.bf16_moments || options_.int8_errors)
      value64 = {static_cast<double>(value.m), static_cast<double>(value.b), static_cast<double>(value.b_hat),
                 static_cast<double>(value.e)};
    const double z64 = reference::worker_ratio(value64, static_cast<double>(g), options_, t);
    const auto [z, plus] = reference::worker_value(value, g, options_, rng, element, active[j]);
    if (options_.feedback) value64.e = active[j] ? z64 - (plus ? 1 : -1) : z64;
    if (!active[j]) return plus;
    // e accumulates one rounding error of r per step (a few 2⁻²⁴, times a cancellation in b/m of up to 1/(1−β)).
    const double tolerance = 2e-6 * t;
    EXPECT_NEAR(z, z64, tolerance);
    EXPECT_TRUE(plus ? reference::quantize(z64 + tolerance, rng, element)
                     : !reference::quantize(z64 - tolerance, rng, element));
    return plus;
  }

  Plan plan_;
  size_t d_;
  int senders_, workers_per_sender_;
  bool server_feedback_;
  reference::Options options_;
  birder::Quantizer quantizer_;
};

// Trains with Birder and with the server above, and compares parameters after every step, and all state.
void compare(const Plan& plan) {
  SCOPED_TRACE(testing::Message() << plan.topology.nodes << " nodes x " << plan.topology.workers_per_node
                                  << " workers, " << plan.d() << " parameters, feedback "
                                  << plan.config.text("error_feedback") << ", quantizer "
                                  << plan.config.text("quantizer"));
  const auto& o = plan.config.as<Birder::Options>();
  const Trained run = test::train(plan);
  ParameterServer server(plan);
  for (int64_t step = 1; step <= plan.steps; ++step) {
    server.step(static_cast<uint32_t>(step));
    ASSERT_EQ(run.x[static_cast<size_t>(step - 1)], std::vector<double>(server.x.begin(), server.x.end()))
        << "step " << step;
  }
  const bool masked = o.mask != Birder::Mask::none, short_moments = o.moments != Birder::Moments::f32;
  const size_t states = 2 + (o.t0 > 0) + server.worker_feedback();
  ASSERT_EQ(run.state.size(), states * static_cast<size_t>(server.senders()) + server.server_feedback() + masked);
  for (size_t j = 0; masked && j < server.x.size(); ++j) EXPECT_EQ(run.state.at({"active", 0})[j], server.active[j]);
  for (int s = 0; s < server.senders(); ++s) {
    for (size_t j = 0; j < server.x.size(); ++j) {
      const auto& value = server.worker[static_cast<size_t>(s)][j];
      const auto& value64 = server.worker64[static_cast<size_t>(s)][j];
      EXPECT_EQ(run.state.at({"m", s})[j], value.m);
      EXPECT_EQ(run.state.at({"b", s})[j], value.b);
      if (o.t0 > 0) {
        EXPECT_EQ(run.state.at({"b_hat", s})[j], value.b_hat);
      }
      if (server.worker_feedback()) {
        EXPECT_EQ(run.state.at({"e", s})[j], value.e);
        EXPECT_LE(std::abs(value.e), 2);
      }
      EXPECT_LE(std::abs(value.m), value.b);
      if (short_moments) continue;  // the float64 copy does not round its state
      EXPECT_NEAR(value.b, value64.b, 1e-6 * value64.b);
      EXPECT_NEAR(value.m, value64.m, 2e-6 * value64.b);
    }
  }
  if (!server.server_feedback()) return;
  const bool short_errors = o.errors == Birder::Errors::int8;
  const double bound = short_errors ? 2 : 2 - 2.0 / server.senders();  // rounding up may increase a mean of thirds
  for (size_t j = 0; j < server.x.size(); ++j) {
    EXPECT_EQ(run.state.at({"server_e", 0})[j], server.server_e[j]);
    const double step = short_errors ? 1.0 / 64 : 1e-6 * static_cast<double>(plan.steps);
    EXPECT_NEAR(server.server_e[j], server.server_e64[j], step);
    EXPECT_LE(std::abs(server.server_e[j]), bound + 1e-5) << "bounded up to rounding";
  }
}

TEST(Birder, EqualsAParameterServerOnAllTopologies) {
  for (const int nodes : {1, 2, 3, 4, 8})
    for (const int workers : {1, 2, 3}) {
      Plan plan = birder_plan(nodes, workers);
      plan.steps = nodes * workers <= 8 ? 200 : 30;
      compare(plan);
    }
}

TEST(Birder, Pitfall25PaddingAndTinyTensors) {
  for (const auto& [nodes, workers] : {std::pair{1, 1}, {1, 3}, {3, 1}, {2, 3}, {8, 2}}) {
    for (const auto& sizes : std::vector<std::vector<int64_t>>{{1}, {2, 3}, {33}, {31, 1, 1}, {5, 0, 2}}) {
      Plan plan = birder_plan(nodes, workers);
      plan.sizes = sizes;
      plan.bucket_bytes = 8;
      compare(plan);
    }
  }
}

// Pitfall 21: "worker i" in the algorithm is node i. Two workers of one node with equal gradients act as one: the same
// signs, and the same m, b, e and ē at the same global offsets, partitioned differently.
TEST(Birder, Pitfall21TheWorkerOfTheAlgorithmIsTheNode) {
  for (const int nodes : {1, 3}) {
    Plan plan = birder_plan(nodes, 1);
    const Trained alone = test::train(plan);
    plan.topology.workers_per_node = 2;
    plan.gradient = [](int rank, int64_t step, int64_t element, double x) {
      return test::noisy_gradient(rank / 2, step, element, x);
    };
    const Trained pairs = test::train(plan);
    EXPECT_EQ(pairs.x, alone.x) << nodes;
    EXPECT_EQ(pairs.state, alone.state) << nodes;
  }
}

// Pitfall 28: no parameter is excluded from compression because it is a bias, small or last.
TEST(Birder, Pitfall28ParametersOfAllSizesAreCompressed) {
  Plan plan = birder_plan(2, 2);
  plan.sizes = {100, 1, 64, 152};
  plan.decay = {true, false, false, true};
  const Trained parts = test::train(plan);
  plan.sizes = {317}, plan.decay = {};
  const Trained one = test::train(plan);
  EXPECT_EQ(parts.x, one.x);
  EXPECT_EQ(parts.state, one.state);
}

// Pitfall 42: with a single node the update still consists of signs, and there is no server step.
TEST(Birder, Pitfall42OneNodeUpdatesWithItsOwnSigns) {
  Plan plan = birder_plan(1, 4);
  plan.config.set("weight_decay", 0);
  const Trained run = test::train(plan);
  const float lr = 0.01f;
  for (size_t j = 0; j < run.x[0].size(); ++j)
    for (size_t step = 1; step < run.x.size(); ++step) {
      const auto before = static_cast<float>(run.x[step - 1][j]);
      ASSERT_TRUE(run.x[step][j] == before - lr || run.x[step][j] == before + lr) << "step " << step + 1;
    }
  for (const auto& phases : run.stats)
    for (const auto& [phase, count] : phases) EXPECT_EQ(count.bytes_inter, 0) << phase;
  for (const auto& [key, values] : run.state) EXPECT_NE(key.first, "server_e");
}

TEST(Birder, MatchesTheParameterServerForEveryOption) {
  for (const auto& [nodes, workers] : {std::pair{1, 1}, {1, 2}, {3, 1}, {2, 2}}) {
    for (const char* feedback : {"worker", "server", "none"}) {
      Plan plan = birder_plan(nodes, workers);
      plan.config.set("error_feedback", feedback);
      compare(plan);
    }
    Plan sign = birder_plan(nodes, workers);
    sign.config.set("quantizer", "sign");
    compare(sign);
    Plan growing = birder_plan(nodes, workers);
    growing.config.set("t0", 7).set("beta", 0.5);
    compare(growing);
    Plan naive = birder_plan(nodes, workers);
    naive.config.set("collective", "all_gather");
    compare(naive);
    Plan compensated = birder_plan(nodes, workers);
    compensated.config.set("compensate_nodes", "true");
    compare(compensated);
    for (Plan plan : {birder_plan(nodes, workers), sign, growing, naive}) {
      plan.config.set("mask", "automatic");
      compare(plan);
      plan.config.set("moments", "bf16");
      compare(plan);
      plan.config.set("errors", "int8");
      compare(plan);
      plan.config.set("moments", "f32").set("mask", "none").set("error_feedback", "worker");
      compare(plan);
    }
  }
}

TEST(Birder, Pitfall15BucketSizeAndThreadsDoNotChangeABit) {
  Plan plan = birder_plan(2, 2);
  plan.sizes = {40'000, 1, 7, 99'999, 31};
  plan.steps = 2;
  plan.bucket_bytes = 1 << 30;
  const Trained whole = test::train(plan);
  ASSERT_EQ(whole.buckets, 1);
  for (const int64_t bytes : {4, 100'000, 160'200}) {
    for (const int threads : {1, 3}) {
      plan.bucket_bytes = bytes;
      plan.threads = threads;
      const Trained run = test::train(plan);
      EXPECT_GT(run.buckets, 1);
      EXPECT_EQ(run.x, whole.x) << bytes << " bytes per bucket, " << threads << " threads";
      EXPECT_EQ(run.state, whole.state) << bytes << " bytes per bucket, " << threads << " threads";
    }
  }
}

TEST(Birder, BytesEqualTheFormulasOfThePaper) {
  for (const auto& [nodes, workers] : {std::pair{1, 1}, {1, 3}, {2, 1}, {3, 2}, {8, 1}, {5, 3}, {2, 4}}) {
    for (const int64_t d : {1, 97, 1000, 4099}) {
      Plan plan = birder_plan(nodes, workers);
      plan.sizes = {d};
      plan.steps = 2;
      SCOPED_TRACE(testing::Message() << nodes << " x " << workers << ", d = " << d);
      const Trained run = test::train(plan);
      const int64_t n = nodes, m = workers, P = plan.steps * 4 * run.padded;
      int64_t inter = 0;
      for (auto stats : run.stats) {
        EXPECT_EQ(stats["h1ar/intra_reduce_scatter"].bytes_intra, (m - 1) * P / m);
        EXPECT_EQ(stats["h1ar/inter_all_to_all"].bytes_inter, (n - 1) * P / (32 * m * n));
        EXPECT_EQ(stats["h1ar/inter_all_gather"].bytes_inter, (n - 1) * P / (32 * m * n));
        EXPECT_EQ(stats["h1ar/intra_all_gather"].bytes_intra, (m - 1) * P / (32 * m));
        int64_t all = 0;
        for (const auto& [phase, count] : stats)
          inter += count.bytes_inter, all += count.bytes_inter + count.bytes_intra;
        EXPECT_EQ(all, (m - 1) * P / m + 2 * (n - 1) * P / (32 * m * n) + (m - 1) * P / (32 * m)) << "no other traffic";
      }
      EXPECT_EQ(inter, 2 * (n - 1) * P / 32);

      plan.config.set("collective", "all_gather");
      int64_t naive_inter = 0, naive_intra = 0;
      for (auto stats : test::train(plan).stats) {
        naive_inter += stats["naive/all_gather"].bytes_inter;
        naive_intra += stats["naive/all_gather"].bytes_intra;
        EXPECT_LE(stats.size(), 1u);
      }
      EXPECT_EQ(naive_inter, m * m * n * (n - 1) * P / 32);
      EXPECT_EQ(naive_intra, m * n * (m - 1) * P / 32);
    }
  }
}

TEST(Birder, WeightDecayFollowsTheDecayFlags) {
  Plan plan = birder_plan(1, 1);
  plan.decay = {true, false, false, true};
  plan.bucket_bytes = 1 << 20;
  const Trained with = test::train(plan);
  plan.config.set("decay_norm_and_bias", false);
  const Trained without = test::train(plan);
  const float keep = static_cast<float>(1 - 0.01 * 0.1), lr = 0.01f;
  for (size_t j = 0; j < with.x[0].size(); ++j) {
    const bool undecayed = j >= 152 && j < 152 + 65;  // bucket order: last parameter first
    const float x0 = static_cast<float>(test::start_value(static_cast<int64_t>(j)));
    const float step = with.x[0][j] < static_cast<double>(keep * x0) ? lr : -lr;
    EXPECT_EQ(with.x[0][j], keep * x0 - step) << j;
    EXPECT_EQ(without.x[0][j], (undecayed ? x0 : keep * x0) - step) << j;
  }
}

// Pitfall 23: measured state size. A rank holds 1/workers of m, b and e, and 1/(nodes·workers) of ē.
TEST(Birder, Pitfall23StateTakesTwelveToFiveBytesPerParameter) {
  for (const auto& [moments, errors, bytes] :
       {std::tuple{"f32", "f32", 12}, {"bf16", "f32", 8}, {"f32", "int8", 9}, {"bf16", "int8", 5}})
    for (const auto& [nodes, workers] : {std::pair{1, 1}, {4, 1}, {2, 2}}) {
      run_local({nodes, workers}, [&, nodes = nodes, workers = workers](Communicator& comm) {
        const OptimizerConfig config = OptimizerConfig("birder").set("moments", moments).set("errors", errors);
        const int64_t d = 128 * 100;
        Buckets buckets({{"x", Var(Tensor::zeros({d}), true)}}, {.alignment = int64_t{32} * comm.topology.world()});
        int64_t own = 0, server = 0;
        for (const StateTensor& part : make_optimizer(config, {buckets, comm})->state())
          (part.name == "server_e" ? server : own) += part.values.bytes();
        EXPECT_EQ(own, bytes * d / workers) << moments << " " << errors;
        EXPECT_EQ(server, nodes == 1 ? 0 : (std::string(errors) == "int8" ? 1 : 4) * d / (nodes * workers));
      });
    }
}

// A noisy quadratic: short state converges like float32 state. Compares the mean loss of the last 1000 steps.
TEST(Birder, ShortStateConvergesOnAQuadratic) {
  const auto loss = [](const char* moments, const char* errors, double beta) {
    Plan plan = birder_plan(4, 1);
    plan.config.set("moments", moments).set("errors", errors);
    plan.config.set("beta", beta).set("weight_decay", 0).set("lr", 1e-3);
    plan.sizes = {256};
    plan.steps = 2000;
    plan.gradient = [](int rank, int64_t step, int64_t element, double x) {
      const float noise =
          to_unit(random_word(3, element, static_cast<uint32_t>(step), Purpose::test, static_cast<uint32_t>(rank))) -
          0.5f;
      return static_cast<double>(static_cast<float>(x) - 0.5f + noise);
    };
    const Trained run = test::train(plan);
    double sum = 0;
    int64_t count = 0;
    for (size_t t = run.x.size() - 1000; t < run.x.size(); ++t)
      for (const double x : run.x[t]) sum += (x - 0.5) * (x - 0.5), ++count;
    return sum / static_cast<double>(count);
  };
  for (const double beta : {0.9, 0.999}) {
    const double full = loss("f32", "f32", beta);
    EXPECT_LT(full, beta < 0.99 ? 1e-4 : 3e-2) << "the initial loss is 0.25";
    for (const auto& [moments, errors] : {std::pair{"bf16", "f32"}, {"f32", "int8"}, {"bf16", "int8"}})
      EXPECT_NEAR(loss(moments, errors, beta) / full, 1, 0.15) << moments << " " << errors << ", beta " << beta;
  }
}

// Parameters that have never had a gradient stay bit-identical (weight decay included) with any feedback. The others
// are updated from the step after their first gradient. The mask adds no traffic.
TEST(Birder, Pitfall3AutomaticMaskFreezesParametersWithoutGradient) {
  for (const auto& [nodes, workers] : {std::pair{1, 1}, {3, 1}, {1, 2}, {2, 2}})
    for (const char* feedback : {"both", "worker", "server", "none"}) {
      Plan plan = birder_plan(nodes, workers);
      plan.config.set("error_feedback", feedback).set("mask", "automatic");
      plan.steps = 60;
      plan.gradient = [world = plan.topology.world()](int rank, int64_t step, int64_t element, double) {
        const bool late = element % 7 == 2 && step == 20 && rank == world - 1;  // a single gradient, on one rank
        return element % 7 == 1 || element % 7 == 2 ? (late ? 1e-6 : 0) : 1;
      };
      const Trained run = test::train(plan);
      for (int64_t j = 0; j < plan.d(); ++j) {
        const size_t i = static_cast<size_t>(j), woken = j % 7 == 2 ? 20 : 1;
        for (size_t step = 1; step <= 60; ++step) {
          const double before = step == 1 ? test::start_value(j) : run.x[step - 2][i];
          EXPECT_EQ(run.x[step - 1][i] == before, j % 7 == 1 || step <= woken) << j << " " << step << " " << feedback;
        }
      }
      int64_t bytes = 0, unmasked = 0;
      plan.config.set("mask", "none");
      const Trained plain = test::train(plan);
      for (size_t rank = 0; rank < run.stats.size(); ++rank) {
        for (const auto& [phase, count] : run.stats[rank]) bytes += count.bytes_inter + count.bytes_intra;
        for (const auto& [phase, count] : plain.stats[rank]) unmasked += count.bytes_inter + count.bytes_intra;
      }
      EXPECT_EQ(bytes, unmasked);
    }
}

TEST(Birder, FrozenParametersStay) {
  for (const char* mask : {"none", "automatic"}) {
    Plan plan = birder_plan(2, 2);
    plan.config.set("frozen", "p1, p3").set("mask", mask);
    const Trained run = test::train(plan);
    const auto frozen = [](int64_t j) { return j < 152 || (j >= 152 + 64 && j < 152 + 65); };  // p3 comes first
    for (int64_t j = 0; j < plan.d(); ++j) {
      if (j % 11 == 3) continue;  // never has a gradient
      EXPECT_EQ(run.x.back()[static_cast<size_t>(j)] == test::start_value(j), frozen(j)) << j;
    }
    plan.config.set("frozen", "p1,p9");
    try {
      test::train(plan);
      ADD_FAILURE() << "accepted an unknown parameter name";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("frozen: the model has no parameter 'p9'"), std::string::npos)
          << error.what();
    }
  }
}

// With all_gather, every rank is the server of all values.
TEST(Birder, ServerErrorsAreReplicatedWithAllGather) {
  run_local({2, 1}, [](Communicator& comm) {
    Buckets buckets({{"x", Var(Tensor::zeros({128}), true)}}, {.alignment = 64});
    for (const char* collective : {"h1ar", "all_gather"}) {
      const auto optimizer = make_optimizer(OptimizerConfig("birder").set("collective", collective), {buckets, comm});
      const std::vector<StateTensor> state = optimizer->state();
      const auto part = std::ranges::find(state, "server_e", &StateTensor::name);
      ASSERT_NE(part, state.end());
      EXPECT_EQ(part->replicated, collective[0] == 'a');
    }
  });
}

// Pitfall 26: a non-finite gradient ends the step on all ranks, and the error names the parameter.
TEST(Birder, Pitfall26RefusesNonFiniteGradients) {
  for (const char* collective : {"h1ar", "all_gather"}) {
    for (const double bad : {static_cast<double>(NAN), static_cast<double>(-INFINITY)}) {
      Plan plan = birder_plan(2, 2);
      plan.config.set("collective", collective);
      plan.gradient = [bad](int rank, int64_t step, int64_t element, double x) {
        return rank == 3 && step == 2 && element == 152 + 64 ? bad : test::noisy_gradient(rank, step, element, x);
      };
      try {
        test::train(plan);
        ADD_FAILURE() << "accepted " << bad;
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("birder: step 2: the gradient of 'p1' is"), std::string::npos)
            << error.what();
      }
    }
  }
}

TEST(Birder, RefusesInvalidBucketsAndSteps) {
  Plan doubles = birder_plan(1, 1);
  doubles.dtype = DType::f64;
  EXPECT_THROW(test::train(doubles), Error);
  run_local({1, 1}, [](Communicator& comm) {
    const OptimizerConfig config = "birder";
    Buckets loose({{"x", Var(Tensor::zeros({40}), true)}}, {1, 1, 1});
    EXPECT_THROW(make_optimizer(config, {loose, comm}), Error) << "not a whole number of 32-bit words";
    Buckets buckets({{"x", Var(Tensor::zeros({40}), true)}}, {}), other({{"x", Var(Tensor::zeros({70}), true)}}, {});
    const auto optimizer = make_optimizer(config, {buckets, comm});
    EXPECT_THROW(optimizer->exchange(buckets[0], comm, {0, 0.1}), Error) << "steps start at 1";
    EXPECT_THROW(optimizer->exchange(other[0], comm, {1, 0.1}), Error) << "an unknown bucket";
  });
}

}  // namespace birder_test
}  // namespace godwit
