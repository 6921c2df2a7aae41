// Trains the small net `Layers` with DataParallel on ranks that are threads. Measures memory and traffic of a step.
#pragma once
#include "engine/gpu.h"
#include "tests/optim/sharding_harness.h"
#include "tests/optim/small_nets.h"

namespace godwit::test {

struct NetPlan {
  ExchangeConfig exchange = "dense";
  Topology topology = {2, 2};
  int64_t bucket_bytes = kWeight + 4 * kWidth;
  int micro_batches = 1, threads = 1;
  bool tied = false, recompute = false;
  double clip_norm = 0;
  DType type = DType::f32;  // type of the activations
  Placement placement = {};
};

struct NetRun {
  std::vector<double> x;       // parameters at the end
  std::vector<double> losses;  // losses of rank 0, by micro-batch
  std::vector<double> norms;
  std::vector<std::map<std::string, CommCount>> stats = {};  // traffic of one step, per rank
  std::vector<int64_t> peaks = {};                           // peak of a step above the memory between steps, per rank
  std::vector<int64_t> between = {};                         // bytes between steps, per rank
};

// Memory of the calling thread's tensors. On the CPU, the threads of a rank share a pool.
class RankMemory {
 public:
  int64_t in_use() const { return pool_->stats().bytes_in_use; }
  int64_t peak() const { return pool_->stats().peak_bytes_in_use; }  // since reset_peak()
  void reset_peak() { pool_->reset_peak(); }
  // On a GPU, the peak of the rank's other threads since their pools were created. 0 on the CPU.
  int64_t peak_of_others() const { return context().device.is_cuda() ? peak_gpu_bytes() - peak() : 0; }

 private:
  std::shared_ptr<Pool> pool_ = context().device.is_cuda() ? detail::cuda_pool(context().device) : context().pool;
};

inline NetRun train(const NetPlan& plan) {
  NetRun run;
  std::mutex mutex;
  const auto world = static_cast<size_t>(plan.topology.world());
  run.stats.resize(world), run.peaks.resize(world), run.between.resize(world);
  const auto body = [&](Communicator& comm) {
    RankMemory memory;
    const int64_t empty = memory.in_use();
    const Layers net(plan.tied, plan.recompute, plan.type);
    DataParallelOptions options{.optimizer = "adamw", .exchange = plan.exchange};
    options.buckets = {plan.bucket_bytes, plan.bucket_bytes};
    options.clip_norm = plan.clip_norm;
    DataParallel replica(net.parameters(), comm, options);
    for (int64_t step = 0; step < 3; ++step) {
      comm.stats->reset();
      memory.reset_peak();
      const int64_t before = memory.in_use();
      replica.begin_step(0.01, plan.micro_batches);
      std::vector<Tensor> losses;
      for (int i = 0; i < plan.micro_batches; ++i) {
        const Var loss = net.loss(comm.rank * plan.micro_batches + i, step);
        losses.push_back(loss.value());
        replica.backward(loss);
      }
      replica.finish_step();
      {
        std::lock_guard lock(mutex);
        const auto rank = static_cast<size_t>(comm.rank);
        run.peaks[rank] = memory.peak() - before + memory.peak_of_others();
        run.between[rank] = memory.in_use() - empty;
        run.stats[rank] = comm.stats->phases();
      }
      if (comm.rank != 0) continue;
      for (const Tensor& loss : losses) run.losses.push_back(loss.item());  // may wait for the other ranks
      run.norms.push_back(replica.gradient_norm());
    }
    replica.check_replicas();
    replica.with_all_parameters([&] {
      if (comm.rank == 0) run.x = values_of(replica.buckets());
    });
  };
  run_local(plan.topology, body, {.threads_per_rank = plan.threads, .placement = plan.placement});
  return run;
}

}  // namespace godwit::test
