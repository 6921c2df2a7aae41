// Trains a small model with any optimizer and any exchange, with given gradients, on ranks that are threads.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/transport/local.h"
#include "engine/hash.h"
#include "engine/philox.h"
#include "optim/data_parallel.h"
#include "tests/optim/support.h"

namespace godwit::test {

struct MethodPlan {
  std::string optimizer = "sgd", exchange = "dense", sharding = "none", parameter_wire = "f32";
  Topology topology{2, 2};
  std::vector<int64_t> sizes{40, 700, 64, 256};
  std::vector<int> gradients{1, 2, 3};  // index of the gradient of each step; 0: the first gradient with a bad value
  double bad = 0;                       // the bad value: element 5 of 'p1' on rank 2
  int late = 0;           // gradients up to this index are 0 at elements 3 modulo 7
  bool skip = false, tied = false;      // tied: every parameter has a second name
  double clip = 0, lr = 1e-3;
  std::optional<double> weight_decay{};
  int64_t bucket_bytes = 512;
  int micro_batches = 1;  // all have the same gradient
  Placement placement{};
  std::function<void(DataParallelOptions&)> change{};  // changes the options that the plan set
  std::function<void(DataParallel&, Communicator&)> before_steps{};
  std::function<void(DataParallel&, Communicator&)> after_step{};
};

// State of a rank at the end, by name: hashes of all bits.
using Remains = std::map<std::string, uint64_t>;

struct MethodOutcome {
  std::vector<Remains> parameters, optimizer, exchange, masters;  // per rank
  std::vector<int64_t> steps, skipped, last_update, calls;
  std::vector<std::string> reasons;
  std::vector<int64_t> agreement_bytes;
  std::vector<std::vector<float>> x;  // values of rank 0 at the start and after each step

  bool same_state(const MethodOutcome& other) const {
    return optimizer == other.optimizer && exchange == other.exchange && masters == other.masters;
  }
  bool same(const MethodOutcome& other) const {
    return same_state(other) && parameters == other.parameters && last_update == other.last_update &&
           steps == other.steps;
  }
};

// A chain with one node per parameter, so that gradients arrive one after the other.
inline Var method_loss(const std::vector<Var>& vars, int rank, int gradient, double bad, int late) {
  Var y(Tensor::full({1}, 1), true);
  for (size_t p = 0; p < vars.size(); ++p)
    y = Var::result(
        Tensor::full({1}, 1), {y, vars[p]}, [=, dy_before = y.gradient(), d = vars[p].gradient()](const Tensor& dy) {
          const auto seed = static_cast<float>(dy.item());
          const Tensor there = d.target(), g(there.shape(), there.dtype(), kCpu);
          const auto step = static_cast<uint32_t>(64 * std::max(gradient, 1) + static_cast<int>(p));
          for (int64_t i = 0; i < g.numel(); ++i)
            g.data<float>()[i] =
                seed * 1e-4f * (to_unit(random_word(9, i, step, Purpose::test, static_cast<uint32_t>(rank))) - 0.4f);
          for (int64_t i = 3; late > 0 && gradient <= late && i < g.numel(); i += 7) g.data<float>()[i] = 0;
          if (gradient == 0 && rank == 2 && p == 1) g.data<float>()[5] = static_cast<float>(bad);
          there.copy_from(g);
          d.add(there);
          dy_before.add(dy);
        });
  return y;
}

inline Remains hashes_of(const std::vector<StateTensor>& parts) {
  Remains remains;
  for (const StateTensor& part : parts) {
    Hash hash;
    hash.add(part.values, part.values.numel());
    remains[detail::concat(part.name, " from ", part.begin)] = hash.value();
  }
  return remains;
}

inline MethodOutcome train_by(const MethodPlan& plan) {
  const auto world = static_cast<size_t>(plan.topology.world());
  MethodOutcome all;
  for (auto* remains : {&all.parameters, &all.optimizer, &all.exchange, &all.masters}) remains->resize(world);
  for (auto* counts : {&all.steps, &all.skipped, &all.last_update, &all.calls, &all.agreement_bytes})
    counts->resize(world);
  all.reasons.resize(world);
  const auto body = [&](Communicator& comm) {
    const size_t rank = static_cast<size_t>(comm.rank);
    std::vector<Parameter> parameters;
    std::vector<Var> vars;
    for (const int64_t size : plan.sizes) {
      vars.emplace_back(Tensor::full({size}, 0.25), true);
      parameters.push_back({"p" + std::to_string(vars.size() - 1), vars.back()});
    }
    for (size_t i = 0; plan.tied && i < vars.size(); ++i) parameters.push_back({"again" + std::to_string(i), vars[i]});
    // Options for a run of six steps. A warm-up ends after the first step.
    DataParallelOptions options{.optimizer = for_run(plan.optimizer, Schedule({}, plan.lr, 6, 6), 6),
                                .exchange = plan.exchange};
    options.exchange.set("sharding", plan.sharding).set("parameter_wire", plan.parameter_wire);
    if (plan.weight_decay) options.optimizer.set("weight_decay", *plan.weight_decay);
    options.buckets = {plan.bucket_bytes, plan.bucket_bytes, 1};
    options.skip_not_finite = plan.skip;
    options.clip_norm = plan.clip;
    options.updated = [&](const Bucket&, const StepInfo& step) { all.last_update[rank] = step.step; };
    if (plan.change) plan.change(options);
    DataParallel replica(parameters, comm, options);
    const auto note = [&] {
      std::vector<float> x;
      replica.with_all_parameters([&] {
        for (const Var& var : vars)
          for (const float value : var.value().to_vector<float>()) x.push_back(value);
      });
      if (rank == 0) all.x.push_back(x);
    };
    if (plan.before_steps) plan.before_steps(replica, comm);
    note();
    const int64_t calls = comm.stats->total().calls;
    for (const int gradient : plan.gradients) {
      replica.begin_step(plan.lr, plan.micro_batches);
      for (int i = 0; i < plan.micro_batches; ++i)
        replica.backward(method_loss(vars, comm.rank, gradient, plan.bad, plan.late));
      EXPECT_EQ(replica.finish_step(), gradient > 0);
      note();
      if (plan.after_step) plan.after_step(replica, comm);
    }
    all.calls[rank] = comm.stats->total().calls - calls;
    all.parameters[rank] = {{"all", replica.value_hash()}};
    all.optimizer[rank] = hashes_of(replica.optimizer().state());
    all.exchange[rank] = hashes_of(replica.optimizer().exchange_state());
    all.masters[rank] = hashes_of(replica.master_state());
    all.steps[rank] = replica.steps();
    all.skipped[rank] = replica.skipped();
    all.reasons[rank] = replica.skip_reason();
    const CommCount agreed = comm.stats->phase("non_finite/all_gather");
    all.agreement_bytes[rank] = agreed.bytes_intra + agreed.bytes_inter;
  };
  run_local(plan.topology, body, {.placement = plan.placement});
  return all;
}

// Every optimizer with every exchange. Optimizers that communicate themselves run once, without an exchange.
inline void for_each_method(const std::function<void(MethodPlan)>& f) {
  for (const std::string& optimizer : method_names<OptimizerMethod>())
    for (const std::string& exchange : method_names<ExchangeMethod>()) {
      if (OptimizerConfig(optimizer).method().communicates_itself && exchange != "dense") continue;
      SCOPED_TRACE(optimizer + " with " + exchange);
      f(MethodPlan{.optimizer = optimizer, .exchange = exchange});
    }
}

// Every exchange with SGD, and every optimizer with the dense exchange or without an exchange if it communicates
// itself.
inline void for_each_part(const std::function<void(MethodPlan)>& f) {
  for (const std::string& exchange : method_names<ExchangeMethod>()) {
    SCOPED_TRACE("sgd with " + exchange);
    f(MethodPlan{.optimizer = "sgd", .exchange = exchange});
  }
  for (const std::string& optimizer : method_names<OptimizerMethod>()) {
    SCOPED_TRACE(optimizer);
    f(MethodPlan{.optimizer = optimizer});
  }
}

}  // namespace godwit::test
