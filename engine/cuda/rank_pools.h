// The pools of one rank's threads on one GPU, of which each has its own.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "engine/cuda/cuda_context.h"

namespace godwit {

class RankPools {
 public:
  void add(const std::shared_ptr<Pool>& pool);
  int64_t peak_bytes() const;  // the sum of the peaks of those that live

 private:
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<Pool>> pools_;
};

// Of the rank that the context belongs to. Called on its thread.
std::shared_ptr<RankPools> rank_pools(CudaContext& context);
// Makes `context` one of the rank's whose thread calls this, where that is on the same GPU.
void join_rank(CudaContext& context);

}  // namespace godwit
