// Trains flat parameters with DataParallel on ranks that are threads. The gradients are those of noisy_gradient().
#pragma once
#include "comm/consistency.h"
#include "optim/data_parallel.h"
#include "tests/optim/harness.h"

namespace godwit::test {

struct ShardPlan {
  OptimizerConfig optimizer = "adamw";
  ExchangeConfig exchange = "dense";
  Topology topology = {2, 2};
  std::vector<Shape> shapes{{100}, {1}, {8, 9}, {152}, {41, 7}, {3}};  // in order of registration
  int64_t steps = 30;
  int64_t bucket_bytes = 900;
  int threads = 1;
  double clip_norm = 0;
  DType dtype = DType::f32;
  GradientOf gradient = noisy_gradient;
};

struct ShardRun {
  std::vector<std::vector<double>> x;  // values of rank 0 after each step, by global element
  std::vector<double> masters;         // final master weights
  std::vector<int64_t> state_values;   // per rank: number of values of its optimizer state
  std::vector<int64_t> owned;          // per rank
  std::vector<std::map<std::string, CommCount>> stats;
  std::vector<Segment> shards;  // shards of the first bucket
  std::vector<double> norms;
};

// A loss whose gradient for element i of variable v is gradient(offset of v + i, value).
inline Var loss_with(const std::vector<Var>& vars, const std::function<double(int64_t, double)>& gradient) {
  std::vector<Gradient> gradients;
  for (const Var& var : vars) gradients.push_back(var.gradient());
  return Var::result(Tensor::full({1}, 0), vars, [vars, gradients, gradient](const Tensor&) {
    int64_t element = 0;
    for (size_t v = vars.size(); v-- > 0;) {
      const Tensor g = gradients[v].target(), x = vars[v].value();
      dispatch_real(x.dtype(), "test", [&]<class T>() {
        for (int64_t i = 0; i < x.numel(); ++i) g.data<T>()[i] = static_cast<T>(gradient(element++, x.data<T>()[i]));
      });
      gradients[v].add(g);
    }
  });
}

inline std::vector<double> values_of(const Buckets& buckets) {
  std::vector<double> values;
  for (const Bucket& bucket : buckets) {
    const Tensor here = bucket.param.to(kCpu);
    for (int64_t i = 0; i < bucket.numel; ++i) values.push_back(here.item(i));
  }
  return values;
}

inline ShardRun train_sharded(const ShardPlan& plan) {
  ShardRun run;
  std::mutex mutex;
  const size_t world = static_cast<size_t>(plan.topology.world());
  run.state_values.resize(world), run.owned.resize(world), run.stats.resize(world);
  const auto body = [&](Communicator& comm) {
    std::vector<Parameter> parameters;
    std::vector<Var> vars;
    int64_t element = 0;
    for (const Shape& shape : plan.shapes) {
      const Tensor value = Tensor::zeros(shape, plan.dtype);
      dispatch_real(plan.dtype, "test", [&]<class T>() {
        for (T& x : value.span<T>()) x = static_cast<T>(start_value(element++));
      });
      vars.emplace_back(value, true);
      parameters.push_back({"p" + std::to_string(vars.size()), vars.back(), vars.size() % 2 == 0});
    }
    DataParallelOptions options{.optimizer = plan.optimizer, .exchange = plan.exchange, .seed = 42};
    options.buckets = {plan.bucket_bytes, plan.bucket_bytes};
    options.clip_norm = plan.clip_norm;
    DataParallel replica(parameters, comm, options);
    comm.stats->reset();
    for (int64_t step = 1; step <= plan.steps; ++step) {
      replica.step(loss_with(vars, [&](int64_t e, double x) { return plan.gradient(comm.rank, step, e, x); }));
      const std::map<std::string, CommCount> counted = comm.stats->phases();
      replica.with_all_parameters([&] {
        for (const Bucket& b : replica.buckets())
          for (int64_t i = b.numel; i < b.padded_numel(); ++i)
            EXPECT_EQ(b.param.item(i), 0) << "padding must stay zero";
        if (comm.rank == 0) run.x.push_back(values_of(replica.buckets()));
      });
      comm.stats->restore(counted);
      if (comm.rank == 0) run.norms.push_back(replica.gradient_norm());
    }
    const std::map<std::string, CommCount> stats = comm.stats->phases();
    replica.check_replicas();
    const auto hash = [&] {
      uint64_t value = 0;
      replica.with_all_parameters([&] { value = replica.buckets().value_hash(); });
      return value;
    };
    const uint64_t before = hash();
    std::vector<double> masters;
    replica.with_master_weights([&] {
      check_identical(*comm.world, replica.buckets().value_hash(), "the masters");
      masters = values_of(replica.buckets());
    });
    EXPECT_EQ(hash(), before) << "with_master_weights() must restore the parameters";
    std::lock_guard lock(mutex);
    const size_t rank = static_cast<size_t>(comm.rank);
    run.stats[rank] = stats;
    for (const StateTensor& part : replica.optimizer().state()) run.state_values[rank] += part.values.numel();
    for (const Bucket& b : replica.buckets()) run.owned[rank] += b.owned.numel();
    if (comm.rank == 0) run.masters = masters, run.shards = replica.buckets()[0].shards;
  };
  run_local(plan.topology, body, {.threads_per_rank = plan.threads});
  return run;
}

inline ExchangeConfig sharded(const std::string& name, const std::string& sharding, const std::string& wire = "f32") {
  ExchangeConfig config = name;
  config.set("sharding", sharding).set("parameter_wire", wire);
  return config;
}

}  // namespace godwit::test
