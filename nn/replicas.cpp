#include "nn/replicas.h"

namespace godwit::nn {

void average_buffers(const Module& module, Group& group) {
  for (const NamedTensor& buffer : module.buffers()) group.all_reduce(buffer.tensor, Reduce::mean, "buffers");
}

}  // namespace godwit::nn
