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
// nodes, all-gather in the node. Throws for another name.
std::unique_ptr<Exchange> make_exchange(const std::string& name);
std::vector<std::string> exchange_names();

}  // namespace godwit
