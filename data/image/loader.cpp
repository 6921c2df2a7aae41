#include "data/image/loader.h"

#include <utility>
#include <vector>

#include "engine/check.h"

namespace godwit::data {
namespace {

// One batch of images; each sample is one part.
struct Job : PrefetchJob {
  const ImageDataset& source;
  bool train;
  int64_t epoch;
  std::vector<uint32_t> samples;
  Batch batch;

  Job(const ImageDataset& from, bool augmented, int64_t of_epoch, std::span<const uint32_t> of)
      : source(from), train(augmented), epoch(of_epoch), samples(of.begin(), of.end()) {
    const auto count = static_cast<int64_t>(samples.size());
    const Shape shape = source.image_shape();
    batch = {Tensor(Shape{count, shape[0], shape[1], shape[2]}, DType::f32, kCpu), Tensor({count}, DType::i32, kCpu)};
  }

  size_t parts() const override { return samples.size(); }

  void prepare(size_t i) override {
    float* to = batch.images.data<float>() + static_cast<int64_t>(i) * source.image_shape().numel();
    batch.labels.data<int32_t>()[i] =
        train ? source.read_augmented(samples[i], epoch, to) : source.read(samples[i], to);
  }
};

}  // namespace

Loader::Loader(const ImageDataset& source, LoaderOptions options)
    : source_(source),
      train_(options.train),
      sampler_(source.size(), options.sampling()),
      prefetcher_(options.prefetch, options.workers, train_ ? "loader" : "evaluation loader") {}

void Loader::start_epoch(int64_t epoch, int64_t first_batch) {
  check(first_batch >= 0 && first_batch <= batches(), "loader: batch ", first_batch, " of ", batches());
  sampler_.start_epoch(epoch);
  epoch_ = epoch;
  submitted_ = first_batch;
  prefetcher_.start([this] {
    return submitted_ < batches() ? std::make_shared<Job>(source_, train_, epoch_, sampler_.batch(submitted_++))
                                  : nullptr;
  });
}

std::optional<Batch> Loader::next() {
  const std::shared_ptr<PrefetchJob> job = prefetcher_.next();
  if (!job) return std::nullopt;
  return std::move(static_cast<Job&>(*job).batch);
}

}  // namespace godwit::data
