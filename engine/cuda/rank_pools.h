// RankPools: the GPU pools of one rank's threads on one GPU. Each thread has its own pool.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "engine/cuda/cuda_context.h"

namespace godwit {

class RankPools {
 public:
  void add(const std::shared_ptr<Pool>& pool);
  int64_t peak_bytes() const;  // sum of the peaks of all pools that still exist

 private:
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<Pool>> pools_;
};

// The pools of the context's rank. Must be called on the context's thread.
std::shared_ptr<RankPools> rank_pools(CudaContext& context);
// Adds `context` to the rank of the calling thread if both are on one GPU.
void join_rank(CudaContext& context);

}  // namespace godwit
