#include "apps/train/bucket_choice.h"

#include "comm/host_tensor.h"
#include "optim/bucket_size.h"

namespace godwit::apps {
namespace {

// Restores the running statistics that a forward pass changes.
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

}  // namespace

std::string pick_bucket_size(CommonConfig& config, Task& task, Communicator& comm, const DataParallelOptions& options) {
  // Held gradients, and gradients that an optimizer clips before it communicates, are exchanged after the last one.
  const bool overlaps = !options.skip_not_finite && !options.refuse_step &&
                        !(options.clip_norm > 0 && options.optimizer.method().communicates_itself);
  task.model().train();
  std::vector<GradientTime> gradients;
  {
    const Restored buffers(task.model().buffers());
    gradients = measure_gradient_times(task.model().parameters(), comm, [&] {
      task.start_epoch(0);
      return task.forward(0).loss;
    });
  }
  const BucketSizeOptions first{.first_mib = config.bucket.first_mib};
  const BucketSize best = best_bucket_size(gradients, measure_bucket_cost(comm, options), overlaps, first.sizes());
  const Tensor mib = cpu_tensor<int64_t>({best.mib});
  comm.world->broadcast(mib, 0, "bucket_size/broadcast");
  const std::string picked = std::to_string(mib.to_vector<int64_t>()[0]);
  if (comm.rank == 0) {
    config.bucket.mib = picked;
    config.notices.push_back("bucket.mib=auto picks " + picked + " MiB: " + best.reason);
  }
  return picked;
}

}  // namespace godwit::apps
