// Trains flat parameters through an exchange with plain gradient descent, on ranks that are threads, and collects every
// mean. Also contains a parameter server in plain code that computes the expected means.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/consistency.h"
#include "comm/exchange/method.h"
#include "comm/transport/local.h"
#include "engine/philox.h"

namespace godwit::test {

using Values = std::vector<float>;

struct ExchangePlan {
  ExchangeConfig config = "dense";
  Topology topology = {};
  std::vector<Shape> shapes{{100}, {1}, {8, 9}, {152}, {700}, {3}};  // in order of registration
  int64_t steps = 30;
  int64_t bucket_bytes = 1200;
  int threads = 1;
  uint64_t seed = 42;
  // If set, creates the exchange that replaces `config`.
  std::function<std::unique_ptr<Exchange>(const Buckets&, const Communicator&)> make = nullptr;

  int64_t d() const {
    int64_t sum = 0;
    for (const Shape& shape : shapes) sum += shape.numel();
    return sum;
  }
  // Parameters as ranges of the global offset, which starts with the last parameter.
  std::vector<Segment> parameters() const {
    std::vector<Segment> all;
    for (size_t i = shapes.size(); i-- > 0;) {
      const int64_t begin = all.empty() ? 0 : all.back().end;
      all.push_back({begin, begin + shapes[i].numel()});
    }
    return all;
  }
  // The blocks of all parameters.
  std::vector<Segment> blocks() const {
    std::vector<Segment> all;
    const int64_t block_size = config.block_size();
    for (const Segment& p : parameters()) {
      const int64_t size = block_size > 0 ? block_size : p.numel();
      for (int64_t at = p.begin; at < p.end; at += size) all.push_back({at, std::min(at + size, p.end)});
    }
    return all;
  }
  // The reply and the feedback of the exchange. For dense, the reply is coded only with the int8 wire.
  std::string reply() const {
    if (config.has("reply")) return config.text("reply");
    return config.has("wire") && config.text("wire") == "int8" ? "coded" : "f32";
  }
  std::string feedback() const { return config.has("error_feedback") ? config.text("error_feedback") : "none"; }
};

// A hash of its arguments in [0, 1). It uses the last steps of MurmurHash3, which are faster than Philox. With -Og, the
// compiler needs the attribute to inline it.
[[gnu::always_inline]] inline float noise(int rank, int64_t step, int64_t element) {
  uint32_t x = (static_cast<uint32_t>(element) * 8 + static_cast<uint32_t>(rank)) * 0x9E3779B9u +
               static_cast<uint32_t>(step) * 0x7FEB352Du;
  x = (x ^ x >> 16) * 0x85EBCA6Bu;
  x = (x ^ x >> 13) * 0xC2B2AE35u;
  return to_unit(x ^ x >> 16);
}

// A noisy quadratic with a different minimum and noise per rank and element. Some elements never have a gradient; some
// have a tiny gradient.
inline float gradient(int rank, int64_t step, int64_t element, float x) {
  if (element % 11 == 3) return 0;
  const float scale = element % 5 == 0 ? 1e-5f : 1.0f;
  return scale * (0.1f * (x - noise(rank, 0, element)) + (noise(rank, step, element) - 0.5f));
}

constexpr float kLr = 0.05f;

struct ExchangeRun {
  std::vector<Values> means;  // after each step, by global element
  // Per rank; NaN for elements that the rank does not hold.
  std::vector<std::map<std::string, Values>> state;
  std::vector<CommCount> sent;  // per rank, over all steps
};

inline ExchangeRun run_exchange(const ExchangePlan& plan) {
  ExchangeRun run;
  const size_t world = static_cast<size_t>(plan.topology.world()), d = static_cast<size_t>(plan.d());
  run.state.resize(world);
  run.sent.resize(world);
  const auto body = [&](Communicator& comm) {
    std::vector<Parameter> parameters;
    for (size_t i = 0; i < plan.shapes.size(); ++i)
      parameters.push_back({"p" + std::to_string(i), Var(Tensor::zeros(plan.shapes[i]), true), true});
    Buckets buckets(parameters, {plan.bucket_bytes, plan.bucket_bytes, int64_t{32} * plan.topology.world()});
    const std::unique_ptr<Exchange> exchange =
        plan.make ? plan.make(buckets, comm) : make_exchange(plan.config, buckets, comm, plan.seed);
    for (int64_t step = 1; step <= plan.steps; ++step) {
      Values mean(d);
      for (Bucket& bucket : buckets) {
        float *x = bucket.param.data<float>(), *g = bucket.grad.data<float>();
        const int64_t n = bucket.numel, begin = bucket.begin;
        for (int64_t i = 0; i < n; ++i) g[i] = gradient(comm.rank, step, begin + i, x[i]);
      }
      for (Bucket& bucket : buckets) exchange->mean(bucket, comm, step);
      for (Bucket& bucket : buckets) {
        float *x = bucket.param.data<float>(), *g = bucket.grad.data<float>(), *m = mean.data() + bucket.begin;
        const int64_t n = bucket.numel, padded = bucket.padded_numel();
        for (int64_t i = 0; i < n; ++i) {
          m[i] = g[i];
          x[i] = x[i] - kLr * g[i];
        }
        for (int64_t i = n; i < padded; ++i)
          if (g[i] != 0) ADD_FAILURE() << "padding must be 0, is " << g[i];
      }
      if (comm.rank == 0) run.means.push_back(mean);
    }
    const size_t rank = static_cast<size_t>(comm.rank);
    run.sent[rank] = comm.stats->total();
    for (const StateTensor& part : exchange->state()) {
      Values& values = run.state[rank][part.name];
      values.resize(d, NAN);
      check(part.begin + part.values.numel() <= plan.d(), "state '", part.name, "' ends behind the last value");
      std::copy_n(part.values.data<float>(), part.values.numel(), values.begin() + part.begin);
    }
    check_identical(*comm.compute, buckets.value_hash(), "the parameters");
  };
  run_local(plan.topology, body, {.threads_per_rank = plan.threads});
  return run;
}

// Returns the decoded message of a sender for the values z, which start at global element `begin`.
using Quantize = std::function<Values(const Values& z, int64_t begin, int64_t step, Purpose purpose, int sender)>;

struct ServerRun {
  std::vector<Values> means;
  std::vector<Values> errors;  // per worker
  Values server_error;
};

inline ServerRun parameter_server(const ExchangePlan& plan, const Quantize& quantize) {
  const size_t d = static_cast<size_t>(plan.d());
  const int world = plan.topology.world();
  const std::string feedback = plan.feedback();
  ServerRun run{{}, std::vector<Values>(static_cast<size_t>(world), Values(d)), Values(d)};
  const std::vector<Segment> blocks = plan.blocks();
  const bool coded = plan.reply() == "coded" && world > 1;
  Values x(d);
  // z = g + e;  u = Q(z);  e = z − u. Uses pointers, because operator[] is a function call in the builds of the tests.
  const auto send = [&](Values z, Values& errors, bool keeps, int64_t step, Purpose purpose, int sender) {
    for (const Segment& b : blocks) {
      float *z_b = z.data() + b.begin, *e = errors.data() + b.begin;
      const int64_t n = b.numel();
      for (int64_t i = 0; keeps && i < n; ++i) z_b[i] = z_b[i] + e[i];
      const Values decoded = quantize({z_b, z_b + n}, b.begin, step, purpose, sender);
      const float* u = decoded.data();
      for (int64_t i = 0; i < n; ++i) {
        e[i] = keeps ? z_b[i] - u[i] : 0;
        z_b[i] = u[i];
      }
    }
    return z;
  };
  for (int64_t step = 1; step <= plan.steps; ++step) {
    Values means(d);
    float *mean = means.data(), *values = x.data();
    for (int rank = 0; rank < world; ++rank) {
      Values gradients(d);
      float* g = gradients.data();
      for (size_t i = 0; i < d; ++i) g[i] = gradient(rank, step, static_cast<int64_t>(i), values[i]);
      const Values sent = send(std::move(gradients), run.errors[static_cast<size_t>(rank)],
                               feedback == "both" || feedback == "worker", step, Purpose::gradient_code, rank);
      const float* u = sent.data();
      for (size_t i = 0; i < d; ++i) mean[i] = rank == 0 ? u[i] : mean[i] + u[i];
    }
    for (size_t i = 0; i < d; ++i) mean[i] /= static_cast<float>(world);
    if (coded) {
      means = send(means, run.server_error, feedback == "both" || feedback == "server", step, Purpose::mean_code, 0);
      mean = means.data();
    }
    for (size_t i = 0; i < d; ++i) values[i] = values[i] - kLr * mean[i];
    run.means.push_back(std::move(means));
  }
  return run;
}

// Sums a block's values in the documented order. There are 16 partial sums, each of every 16th value. They are reduced
// by adding the upper half to the lower half. Blocks are split into pieces of 8192 values; the sums of pieces are added
// in the same order.
inline double lane_sum(const std::vector<double>& terms) {
  constexpr size_t kPiece = 8192;
  if (terms.size() > kPiece) {
    std::vector<double> pieces;
    for (auto at = terms.begin(); at < terms.end(); at += std::min<int64_t>(kPiece, terms.end() - at))
      pieces.push_back(lane_sum({at, at + std::min<int64_t>(kPiece, terms.end() - at)}));
    return lane_sum(pieces);
  }
  double lanes[16] = {};
  const double* values = terms.data();
  for (size_t i = 0, n = terms.size(); i < n; ++i) lanes[i % 16] += values[i];
  for (size_t half = 8; half > 0; half /= 2)
    for (size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  return lanes[0];
}

// Compares means, errors and replicas with the parameter server, bit for bit.
inline void expect_parameter_server(const ExchangePlan& plan, const Quantize& quantize) {
  SCOPED_TRACE(plan.config.name() + ", " + std::to_string(plan.topology.nodes) + " × " +
               std::to_string(plan.topology.workers_per_node) + ", reply " + plan.reply() + ", feedback " +
               plan.feedback() + ", blocks of " + std::to_string(plan.config.block_size()));
  const ExchangeRun run = run_exchange(plan);
  const ServerRun expected = parameter_server(plan, quantize);
  for (size_t step = 0; step < run.means.size(); ++step)
    ASSERT_EQ(run.means[step], expected.means[step]) << "step " << step + 1;
  const std::string feedback = plan.feedback();
  const bool worker = feedback == "both" || feedback == "worker";
  const bool server =
      (feedback == "both" || feedback == "server") && plan.reply() == "coded" && plan.topology.world() > 1;
  std::vector<int> owners(static_cast<size_t>(plan.d()));
  for (size_t rank = 0; rank < run.state.size(); ++rank) {
    const auto& state = run.state[rank];
    ASSERT_EQ(state.contains("e"), worker);
    if (worker) {
      EXPECT_EQ(state.at("e"), expected.errors[rank]) << "rank " << rank;
    }
    if (!state.contains("server_e")) continue;
    EXPECT_TRUE(server);
    const Values& own = state.at("server_e");
    for (size_t i = 0; i < owners.size(); ++i) {
      if (std::isnan(own[i])) continue;
      ++owners[i];
      if (own[i] != expected.server_error[i]) {
        EXPECT_EQ(own[i], expected.server_error[i]) << "element " << i;
      }
    }
  }
  EXPECT_EQ(owners, std::vector<int>(owners.size(), server ? 1 : 0)) << "every element must have one server error";
}

inline const Topology kRanks[] = {{1, 1}, {2, 1}, {1, 3}, {2, 2}, {5, 1}, {3, 2}, {7, 1}, {4, 2}};

}  // namespace godwit::test
