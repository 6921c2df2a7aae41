#include "engine/cuda/rank_pools.h"

#include "engine/context.h"

namespace godwit {
namespace {

const std::vector<int64_t> kKey{-1};  // cache key in the context; keys of libraries begin with other numbers

}  // namespace

void RankPools::add(const std::shared_ptr<Pool>& pool) {
  const std::lock_guard lock(mutex_);
  pools_.push_back(pool);
}

int64_t RankPools::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t sum = 0;
  for (const auto& one : pools_)
    if (const auto pool = one.lock()) sum += pool->stats().peak_bytes_in_use;
  return sum;
}

std::shared_ptr<RankPools> rank_pools(CudaContext& context) {
  return context.cached<std::shared_ptr<RankPools>>(kKey, [] { return std::make_shared<RankPools>(); });
}

void join_rank(CudaContext& context) {
  const auto& maker = godwit::context().cuda;
  const auto pools = maker && maker->index == context.index ? rank_pools(*maker) : std::make_shared<RankPools>();
  context.cached<std::shared_ptr<RankPools>>(kKey, [&] { return pools; });
  pools->add(context.pool);
  if (maker && maker->index == context.index) context.aborted = maker->aborted;
}

}  // namespace godwit
