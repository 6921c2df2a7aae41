// Exchange: replaces the gradient of a bucket by its mean over all ranks; gradient optimizers work behind any of them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "comm/bucket.h"
#include "comm/group.h"

namespace godwit {

class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void mean(Bucket& bucket, Communicator& comm) = 0;  // bucket.grad, in place
};

// "dense": one all-reduce over the world. "hierarchical": reduce-scatter in the node, all-reduce of the shards between
// nodes, all-gather in the node. `wire` is the type of what crosses the network (hierarchical: between nodes; within a
// node it is the gradients' type): f32, bf16 or f16. In 16 bits a step sends an all-to-all of rounded parts, which
// their owners add in float32, and an all-gather of the means, rounded once: half of float32's bytes, the same bits on
// all ranks. A gradient that overflows float16 throws. Throws for another name or wire.
std::unique_ptr<Exchange> make_exchange(const std::string& name, const std::string& wire = "f32");
std::vector<std::string> exchange_names();
std::vector<std::string> wire_names();

}  // namespace godwit
