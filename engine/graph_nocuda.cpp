#include "engine/check.h"
#include "engine/graph.h"

namespace godwit {

struct CudaGraphCache::Impl {};

CudaGraphCache::CudaGraphCache(size_t) { fail("graphs: CUDA graphs need a GPU, but this build has no CUDA"); }
CudaGraphCache::~CudaGraphCache() = default;
CudaGraphCache::How CudaGraphCache::run(const std::vector<int64_t>&, const std::function<void()>&) {
  return How::eager;
}
bool CudaGraphCache::captured(const std::vector<int64_t>&) const { return false; }
size_t CudaGraphCache::captures() const { return 0; }

UsualPool::UsualPool() = default;
UsualPool::~UsualPool() = default;

bool capturing() { return false; }
void on_replay(std::function<void()>) {}
void graph_break(std::function<void()> f) { f(); }

}  // namespace godwit
