#include "engine/cuda/graph.h"

#include <map>
#include <utility>

#include "engine/context.h"
#include "engine/cuda/rank_pools.h"
#include "engine/graph.h"
#include "engine/profile.h"

namespace godwit {

void GraphCapture::Part::launch(cudaStream_t stream, bool replays) const {
  for (const Call& call : before)
    if (replays || !call.replays_only) call.f();
  graph.launch(stream);
}

GraphCapture::GraphCapture(CudaContext& context, std::shared_ptr<Pool> pool)
    : context_(context), pool_(std::move(pool)) {
  begin();
}

GraphCapture::~GraphCapture() {
  if (context_.graph_capture != this) return;
  context_.graph_capture = nullptr;
  context_.pool = usual_pool_;
  cudaGraph_t dropped = nullptr;
  cudaStreamEndCapture(context_.stream.get(), &dropped);
  if (dropped) cudaGraphDestroy(dropped);
  cudaGetLastError();  // clears the error, so that later calls do not report it
}

// Captures the work of this thread only; other threads may use the GPU meanwhile.
void GraphCapture::begin() {
  cuda_check(cudaStreamBeginCapture(context_.stream.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  usual_pool_ = std::exchange(context_.pool, pool_);
  context_.graph_capture = this;
}

void GraphCapture::end() {
  context_.graph_capture = nullptr;
  context_.pool = std::move(usual_pool_);
  cudaGraph_t captured = nullptr;
  cuda_check(cudaStreamEndCapture(context_.stream.get(), &captured), "cudaStreamEndCapture");
  part_.graph = CudaGraph(captured);
  part_.launch(context_.stream.get(), false);
  parts_.push_back(std::exchange(part_, Part{}));
}

void GraphCapture::graph_break(std::function<void()> f) {
  end();
  parts_.back().after = std::move(f);
  parts_.back().after();
  begin();
}

// `kept` is written before the part's first kernel, so it must not share memory with tensors of the capture's pool.
void GraphCapture::copy(const Tensor& from, const Tensor& to) {
  const Tensor kept = Tensor::over(Buffer(usual_pool_, to.bytes()), 0, {to.bytes()}, DType::u8);
  part_.before.push_back({[&context = context_, from, kept] {
                            context.staging.copy(from.address(), kept.address(), kept.bytes(), context.stream.get());
                          },
                          false});
  cuda_check(cudaMemcpyAsync(to.address(), kept.address(), static_cast<size_t>(to.bytes()), cudaMemcpyDeviceToDevice,
                             context_.stream.get()),
             "cudaMemcpyAsync");
}

std::vector<GraphCapture::Part> GraphCapture::finish() {
  end();
  return std::move(parts_);
}

struct CudaGraphCache::Impl {
  struct Step {
    std::vector<GraphCapture::Part> parts;  // empty before capture
  };

  const std::shared_ptr<CudaContext> context;
  const std::shared_ptr<Pool> pool;
  const size_t most;
  std::map<std::vector<int64_t>, Step> steps;
  size_t captures = 0;

  Impl(std::shared_ptr<CudaContext> given, size_t most_steps)
      : context(std::move(given)), pool(make_cuda_pool(context->index, context->shared_stream)), most(most_steps) {
    rank_pools(*context)->add(pool);
  }
  ~Impl() { cudaStreamSynchronize(context->stream.get()); }  // graphs may still be running

  void call(const std::function<void()>& f) const;
  How run(const std::vector<int64_t>& key, const std::function<void()>& f);
};

// Runs f eagerly, with tensors from the capture's pool, so that the usual pool need not reserve memory for a step.
void CudaGraphCache::Impl::call(const std::function<void()>& f) const {
  struct Scope {
    CudaContext& context;
    std::shared_ptr<Pool> usual;
    ~Scope() { context.pool = usual; }
  };
  const Scope scope{*context, std::exchange(context->pool, pool)};
  f();
}

CudaGraphCache::How CudaGraphCache::Impl::run(const std::vector<int64_t>& key, const std::function<void()>& f) {
  check(godwit::context().cuda == context, "graphs: run() must be called on the thread and device of the constructor");
  check(!context->graph_capture, "graphs: run() was called during CUDA graph capture");
  const auto found = steps.find(key);
  if (found == steps.end()) {
    call(f);
    steps[key];
    return How::eager;
  }
  Step& step = found->second;
  if (!step.parts.empty()) {
    const ProfileRange range("replay");
    for (const GraphCapture::Part& part : step.parts) {
      part.launch(context->stream.get(), true);
      if (part.after) part.after();
    }
    return How::replayed;
  }
  if (captures >= most) {
    call(f);
    return How::eager;
  }
  const ProfileRange range("capture");
  if (context->before_loading) context->before_loading();
  GraphCapture graph_capture(*context, pool);
  f();
  step.parts = graph_capture.finish();
  ++captures;
  return How::captured;
}

CudaGraphCache::CudaGraphCache(size_t most) {
  check(context().cuda != nullptr, "graphs: CUDA graphs need a GPU, but the thread's context is on ", context().device,
        "; create it with context_on(device)");
  impl_ = std::make_unique<Impl>(context().cuda, most);
}

CudaGraphCache::~CudaGraphCache() = default;

CudaGraphCache::How CudaGraphCache::run(const std::vector<int64_t>& key, const std::function<void()>& f) {
  return impl_->run(key, f);
}

bool CudaGraphCache::captured(const std::vector<int64_t>& key) const {
  const auto found = impl_->steps.find(key);
  return found != impl_->steps.end() && !found->second.parts.empty();
}

size_t CudaGraphCache::captures() const { return impl_->captures; }

UsualPool::UsualPool() : context_(context().cuda) {
  if (context_) before_ = std::exchange(context_->pool, context_->usual_pool);
}

UsualPool::~UsualPool() {
  if (context_) context_->pool = std::move(before_);
}

namespace {
GraphCapture* graph_capture() { return context().cuda ? context().cuda->graph_capture : nullptr; }
}  // namespace

bool capturing() { return graph_capture() != nullptr; }

void on_replay(std::function<void()> f) {
  if (GraphCapture* const here = graph_capture()) here->on_replay(std::move(f));
}

void graph_break(std::function<void()> f) {
  if (GraphCapture* const here = graph_capture()) here->graph_break(std::move(f));
  else f();
}

}  // namespace godwit
