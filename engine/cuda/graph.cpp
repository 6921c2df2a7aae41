#include "engine/cuda/graph.h"

#include <map>

#include "engine/context.h"
#include "engine/cuda/rank_pools.h"
#include "engine/graph.h"
#include "engine/profile.h"

namespace godwit {

void Recorder::Part::launch(cudaStream_t stream, bool replays) const {
  for (const Call& call : before)
    if (replays || !call.replays_only) call.f();
  graph.launch(stream);
}

Recorder::Recorder(CudaContext& context, std::shared_ptr<Pool> pool) : context_(context), pool_(std::move(pool)) {
  begin();
}

Recorder::~Recorder() {
  if (context_.recorder != this) return;
  context_.recorder = nullptr;
  context_.pool = usual_pool_;
  cudaGraph_t dropped = nullptr;
  cudaStreamEndCapture(context_.stream.get(), &dropped);
  if (dropped) cudaGraphDestroy(dropped);
  cudaGetLastError();  // not one for later calls to report
}

// A capture of this thread alone: what others do with the GPU meanwhile is none of its business.
void Recorder::begin() {
  cuda_check(cudaStreamBeginCapture(context_.stream.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  usual_pool_ = std::exchange(context_.pool, pool_);
  context_.recorder = this;
}

void Recorder::end() {
  context_.recorder = nullptr;
  context_.pool = std::move(usual_pool_);
  cudaGraph_t captured = nullptr;
  cuda_check(cudaStreamEndCapture(context_.stream.get(), &captured), "cudaStreamEndCapture");
  part_.graph = CudaGraph(captured);
  part_.launch(context_.stream.get(), false);
  parts_.push_back(std::exchange(part_, Part{}));
}

void Recorder::between(std::function<void()> f) {
  end();
  parts_.back().after = std::move(f);
  parts_.back().after();
  begin();
}

// Written before the part's first kernel, so in memory that none of them had before.
void Recorder::copy(const Tensor& from, const Tensor& to) {
  const Tensor kept = Tensor::over(Buffer(usual_pool_, to.bytes()), 0, {to.bytes()}, DType::u8);
  part_.before.push_back({[&context = context_, from, kept] {
                            context.staging.copy(from.address(), kept.address(), kept.bytes(), context.stream.get());
                          },
                          false});
  cuda_check(cudaMemcpyAsync(to.address(), kept.address(), static_cast<size_t>(to.bytes()), cudaMemcpyDeviceToDevice,
                             context_.stream.get()),
             "cudaMemcpyAsync");
}

std::vector<Recorder::Part> Recorder::finish() {
  end();
  return std::move(parts_);
}

struct StepGraphs::Impl {
  struct Step {
    std::vector<Recorder::Part> parts;  // none before it is recorded
  };

  const std::shared_ptr<CudaContext> context;
  const std::shared_ptr<Pool> pool;
  const size_t most;
  std::map<std::vector<int64_t>, Step> steps;
  size_t recordings = 0;

  Impl(std::shared_ptr<CudaContext> given, size_t most_steps)
      : context(std::move(given)), pool(make_cuda_pool(context->index, context->shared_stream)), most(most_steps) {
    rank_pools(*context)->add(pool);
  }
  ~Impl() { cudaStreamSynchronize(context->stream.get()); }  // graphs may still run

  void call(const std::function<void()>& f) const;
  How run(const std::vector<int64_t>& key, const std::function<void()>& f);
};

// In the memory that the recording will take from: there is none elsewhere for a step then.
void StepGraphs::Impl::call(const std::function<void()>& f) const {
  struct Scope {
    CudaContext& context;
    std::shared_ptr<Pool> usual;
    ~Scope() { context.pool = usual; }
  };
  const Scope scope{*context, std::exchange(context->pool, pool)};
  f();
}

StepGraphs::How StepGraphs::Impl::run(const std::vector<int64_t>& key, const std::function<void()>& f) {
  check(godwit::context().cuda == context, "graphs: run() on another thread, or device, than they were made for");
  check(!context->recorder, "graphs: run() within what is recorded");
  const auto found = steps.find(key);
  if (found == steps.end()) {
    call(f);
    if (steps.size() < most) steps[key];
    return How::called;
  }
  Step& step = found->second;
  if (!step.parts.empty()) {
    const ProfileRange range("replay");
    for (const Recorder::Part& part : step.parts) {
      part.launch(context->stream.get(), true);
      if (part.after) part.after();
    }
    return How::replayed;
  }
  const ProfileRange range("record");
  Recorder recorder(*context, pool);
  f();
  step.parts = recorder.finish();
  ++recordings;
  return How::recorded;
}

StepGraphs::StepGraphs(size_t most) {
  check(context().cuda != nullptr, "graphs: steps are recorded on a GPU, the thread's context is on ", context().device,
        "; make it with context_on(device)");
  impl_ = std::make_unique<Impl>(context().cuda, most);
}

StepGraphs::~StepGraphs() = default;

StepGraphs::How StepGraphs::run(const std::vector<int64_t>& key, const std::function<void()>& f) {
  return impl_->run(key, f);
}

bool StepGraphs::recorded(const std::vector<int64_t>& key) const {
  const auto found = impl_->steps.find(key);
  return found != impl_->steps.end() && !found->second.parts.empty();
}

size_t StepGraphs::recordings() const { return impl_->recordings; }

namespace {
Recorder* recorder() { return context().cuda ? context().cuda->recorder : nullptr; }
}  // namespace

bool recording() { return recorder() != nullptr; }

void on_replay(std::function<void()> f) {
  if (Recorder* const here = recorder()) here->on_replay(std::move(f));
}

void between(std::function<void()> f) {
  if (Recorder* const here = recorder()) here->between(std::move(f));
  else f();
}

}  // namespace godwit
