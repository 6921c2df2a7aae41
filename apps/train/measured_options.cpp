#include "apps/train/measured_options.h"

#include "comm/host_tensor.h"
#include "optim/exchange_timing.h"

namespace godwit::apps {
namespace {

// Restores the tensors that a forward pass changes: running statistics, and the state of the task.
class Restored {
 public:
  explicit Restored(std::vector<nn::NamedTensor> tensors) : tensors_(std::move(tensors)) {
    for (const nn::NamedTensor& tensor : tensors_) before_.push_back(tensor.tensor.clone());
  }
  ~Restored() {
    for (size_t i = 0; i < tensors_.size(); ++i) tensors_[i].tensor.copy_from(before_[i]);
  }
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;

 private:
  std::vector<nn::NamedTensor> tensors_;
  std::vector<Tensor> before_;
};

std::vector<GradientTime> gradient_times(Task& task, Communicator& comm) {
  task.model().train();
  std::vector<nn::NamedTensor> changed = task.model().buffers();
  for (const nn::NamedTensor& tensor : task.state()) changed.push_back(tensor);
  const Restored restored(changed);
  return measure_gradient_times(task.model().parameters(), comm, [&] {
    task.start_epoch(0);
    return task.forward(0).loss;
  });
}

int64_t of_rank_0(int64_t value, Communicator& comm) {
  const Tensor shared = cpu_tensor<int64_t>({value});
  comm.world->broadcast(shared, 0, "measured_options/broadcast");
  return shared.to_vector<int64_t>()[0];
}

}  // namespace

bool picks_wire(const ExchangeConfig& exchange) { return exchange.has("wire") && exchange.text("wire") == "auto"; }
bool measures(const CommonConfig& config) { return config.bucket.mib == "auto" || picks_wire(config.exchange); }

void pick_measured_options(CommonConfig& config, Task& task, Communicator& comm, DataParallelOptions& options) {
  BucketSizeOptions buckets = config.bucket;
  const bool size_is_auto = buckets.mib == "auto", wire_is_auto = picks_wire(config.exchange);
  if (wire_is_auto || size_is_auto) {
    // Gradients that may be skipped, or that are clipped before communication, are exchanged after the last gradient.
    const bool overlaps = !options.skip_not_finite && !options.refuse_step &&
                          !(options.clip_norm > 0 && options.optimizer.method().communicates_itself);
    const std::vector<GradientTime> gradients = gradient_times(task, comm);
    const BucketOptions first = BucketSizeOptions{.first_mib = buckets.first_mib}.sizes();
    const auto best_size = [&] {  // with the exchange of `options`
      const BucketCost cost = measure_bucket_cost(comm, options);
      if (size_is_auto) return best_bucket_size(gradients, cost, overlaps, first);
      return BucketSize{0, predicted_seconds(gradients, cost, overlaps, buckets.sizes()), ""};
    };
    std::vector<std::string> notices;
    std::vector<WireTime> wires{{"f32", 0}, {"bf16", 0}};
    std::vector<BucketSize> sizes;
    for (WireTime& wire : wires) {
      if (wire_is_auto) options.exchange.set("wire", wire.wire);
      sizes.push_back(best_size());
      wire.seconds = sizes.back().seconds;
      if (!wire_is_auto) break;
    }
    BucketSize size = sizes[0];
    if (wire_is_auto) {
      const BestWire best = best_wire(wires);
      const auto index = static_cast<size_t>(of_rank_0(static_cast<int64_t>(best.index), comm));
      options.exchange.set("wire", wires[index].wire);
      notices.push_back("exchange.wire=auto picks " + wires[index].wire + ": " + best.reason);
      size = sizes[index];
    }
    if (size_is_auto) {
      buckets.mib = std::to_string(of_rank_0(size.mib, comm));
      notices.push_back("bucket.mib=auto picks " + buckets.mib + " MiB: " + size.reason);
    }
    if (comm.rank == 0) {
      config.bucket.mib = buckets.mib;
      config.exchange = options.exchange;
      config.notices.insert(config.notices.end(), notices.begin(), notices.end());
    }
  }
  options.buckets = buckets.sizes();
}

}  // namespace godwit::apps
