// Measures state bytes per parameter and bytes per step of each method, on ranks of this process.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

#include "bench/program.h"
#include "comm/transport/local.h"
#include "engine/philox.h"
#include "optim/data_parallel.h"

using namespace godwit;

namespace {

struct Sizes {
  double optimizer = 0, exchange = 0, masters = 0;  // mean state bytes per rank
  int64_t intra = 0, inter = 0, calls = 0;          // per step: bytes of all ranks, calls of one rank
};

// Four square matrices, and a vector for the remaining values.
std::vector<Parameter> model(int64_t d) {
  const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(d) / 4));
  std::vector<Parameter> parameters;
  for (int i = 0; i < 4; ++i)
    parameters.push_back({detail::concat("w", i), Var(Tensor::full({side, side}, 0.01), true)});
  if (d > 4 * side * side) parameters.push_back({"b", Var(Tensor::full({d - 4 * side * side}, 0.01), true)});
  return parameters;
}

Var noise_of(const std::vector<Parameter>& parameters, int rank, int step) {
  std::vector<Var> vars;
  std::vector<Gradient> gradients;
  for (const Parameter& p : parameters) vars.push_back(p.var), gradients.push_back(p.var.gradient());
  return Var::result(Tensor::full({1}, 1), vars, [gradients, rank, step](const Tensor&) {
    RandomStream random(1, Purpose::test, static_cast<uint32_t>(rank), static_cast<uint32_t>(step));
    for (const Gradient& gradient : gradients) {
      const Tensor g = gradient.target();
      for (float& value : g.span<float>()) value = 1e-4f * (random.uniform() - 0.5f);
      gradient.add(g);
    }
  });
}

double bytes_of(const std::vector<StateTensor>& parts) {
  double sum = 0;
  for (const StateTensor& part : parts) sum += static_cast<double>(part.values.bytes());
  return sum;
}

Sizes measure(const Topology& topology, int64_t d, const DataParallelOptions& options) {
  Sizes sizes;
  std::mutex mutex;
  const auto body = [&](Communicator& comm) {
    const std::vector<Parameter> parameters = model(d);
    DataParallel replica(parameters, comm, options);
    replica.step(noise_of(parameters, comm.rank, 1), 1e-3);
    const CommCount before = comm.stats->total();
    replica.step(noise_of(parameters, comm.rank, 2), 1e-3);
    const CommCount after = comm.stats->total();
    const std::lock_guard lock(mutex);
    sizes.optimizer += bytes_of(replica.optimizer().state()) / topology.world();
    sizes.exchange += bytes_of(replica.optimizer().exchange_state()) / topology.world();
    sizes.masters += bytes_of(replica.master_state()) / topology.world();
    sizes.intra += after.bytes_intra - before.bytes_intra;
    sizes.inter += after.bytes_inter - before.bytes_inter;
    sizes.calls = std::max(sizes.calls, after.calls - before.calls);
  };
  run_local(topology, body);
  return sizes;
}

// Prints the reason if a method is rejected. Omits unsupported shardings of an exchange.
void print(const std::string& name, const Topology& topology, int64_t d, const DataParallelOptions& options) {
  const double n = static_cast<double>(d), workers = topology.world();
  try {
    const Sizes s = measure(topology, d, options);
    std::printf("%-34s %9.3f %9.3f %8.3f %13.4f %13.4f %6lld\n", name.c_str(), s.optimizer / n, s.exchange / n,
                s.masters / n, static_cast<double>(s.intra) / n / workers, static_cast<double>(s.inter) / n / workers,
                static_cast<long long>(s.calls));
  } catch (const Error& error) {
    if (!name.starts_with(" ")) std::printf("%-34s refused: %s\n", name.c_str(), error.what());
  }
}

void print_all(const Topology& topology, int64_t d, const std::string& optimizer) {
  std::printf("%d nodes of %d workers, %lld parameters; all per worker and parameter, in bytes; the second step\n",
              topology.nodes, topology.workers_per_node, static_cast<long long>(d));
  std::printf("%-34s %9s %9s %8s %13s %13s %6s\n", "", "optimizer", "exchange", "masters", "within nodes",
              "between nodes", "calls");
  DataParallelOptions options;
  // Uses a single bucket, because some scales cover a worker's whole message.
  options.buckets = {int64_t{1} << 40, int64_t{1} << 40, 1};
  for (const std::string& name : method_names<OptimizerMethod>()) {
    options.optimizer = for_run(name, Schedule({}, 1e-3, 6, 6), 6);  // the second step is after the warm-up
    if (options.optimizer.has("refresh_variance")) options.optimizer.set("refresh_variance", false);
    options.exchange = "dense";
    print(name, topology, d, options);
    if (name != "birder") continue;
    options.optimizer.set("moments", "bf16").set("errors", "int8");
    print("birder, bf16 moments, int8 errors", topology, d, options);
    options.optimizer.set("mask", "automatic");
    print("birder, bf16, int8, automatic mask", topology, d, options);
  }
  options.optimizer = optimizer;
  for (const std::string& name : method_names<ExchangeMethod>()) {
    options.exchange = name;
    print(optimizer + " with " + name, topology, d, options);
    for (const Sharding sharding : {Sharding::none, Sharding::zero1, Sharding::zero2}) {
      options.exchange.sharding = sharding;
      if (sharding != options.exchange.method().sharding)
        print("  " + options.exchange.text("sharding"), topology, d, options);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const char* usage =
      "usage: bench_methods [NODES WORKERS PARAMETERS [OPTIMIZER]]\n"
      "State bytes per parameter and bytes per step of each method, measured on ranks of this process.\n"
      "default: 4 2 1000000, exchanges with adamw";
  return bench::run_program(argc, argv, usage, [&] {
    check(argc == 1 || argc == 4 || argc == 5, usage);
    const auto number = [&](int i, const char* name, int64_t least) {
      return bench::whole_number(argv[i], name, least);
    };
    const Topology topology = argc > 1 ? Topology{static_cast<int>(number(1, "NODES", 1)),
                                                  static_cast<int>(number(2, "WORKERS", 1))}
                                       : Topology{4, 2};
    print_all(topology, argc > 1 ? number(3, "PARAMETERS", 4) : 1'000'000, argc == 5 ? argv[4] : "adamw");
  });
}
