#include "nn/replicas.h"

#include "nn/layers.h"

namespace godwit::nn {

void average_buffers(const Module& module, Group& group) {
  for (const NamedTensor& buffer : module.buffers()) group.all_reduce(buffer.tensor, Reduce::mean, "buffers");
}

void broadcast_buffers(const Module& module, Group& group) {
  for (const NamedTensor& buffer : module.buffers()) group.broadcast(buffer.tensor, 0, "buffers");
}

void synchronize_batch_norm(Module& module, std::shared_ptr<Group> group) {
  check(group != nullptr, "synchronize_batch_norm: group is null");
  const auto gather = [group](const Tensor& x) {
    const Tensor all({group->size(), x.numel()}, x.dtype());
    group->all_gather(x, all, "batch_norm");
    return all;
  };
  module.visit([&](Module& part) {
    if (auto* norm = dynamic_cast<BatchNorm2d*>(&part)) norm->synchronize(gather);
  });
}

}  // namespace godwit::nn
