#include "data/loader.h"

#include <utility>

namespace godwit::data {

Loader::Loader(const ImageDataset& dataset, LoaderOptions options)
    : dataset_(dataset),
      options_(std::move(options)),
      sampler_(dataset.size(), {.batch = options_.batch,
                                .rank = options_.rank,
                                .world = options_.world,
                                .seed = options_.seed,
                                .train = options_.train}),
      transform_(dataset.image_shape, {.mean = options_.mean,
                                       .std = options_.std,
                                       .pad = options_.pad,
                                       .flip = options_.flip,
                                       .seed = options_.seed}),
      submitted_(sampler_.batches()) {
  check(options_.prefetch >= 1, "loader: prefetch ", options_.prefetch, ", expected at least 1 batch");
}

void Loader::start_epoch(int64_t epoch, int64_t first_batch) {
  check(first_batch >= 0 && first_batch <= batches(), "loader: batch ", first_batch, " of ", batches());
  stream_.wait();  // what was prepared of another epoch reads the order that changes now
  ahead_.clear();
  sampler_.start_epoch(epoch);
  epoch_ = epoch;
  submitted_ = first_batch;
  for (int i = 0; i < options_.prefetch; ++i) submit();
}

std::optional<Batch> Loader::next() {
  if (ahead_.empty()) return std::nullopt;
  std::future<Prepared> first = std::move(ahead_.front());
  ahead_.pop_front();
  submit();
  Prepared prepared = first.get();
  if (prepared.error) std::rethrow_exception(prepared.error);
  return std::move(prepared.batch);
}

void Loader::submit() {
  if (submitted_ == batches()) return;
  auto task = std::make_shared<std::packaged_task<Prepared()>>([this, k = submitted_] { return try_prepare(k); });
  ahead_.push_back(task->get_future());
  stream_.submit([task] { (*task)(); });
  ++submitted_;
}

Loader::Prepared Loader::try_prepare(int64_t k) const {
  Prepared result;
  try {
    result.batch = prepare(k);
  } catch (...) {
    result.error = std::current_exception();
  }
  return result;
}

Batch Loader::prepare(int64_t k) const {
  const auto samples = sampler_.batch(k);
  const auto count = static_cast<int64_t>(samples.size());
  const Shape& shape = dataset_.image_shape;
  Batch batch{Tensor(Shape{count, shape[0], shape[1], shape[2]}), Tensor(Shape{count}, DType::i32)};
  float* to = batch.images.data<float>();
  int32_t* label = batch.labels.data<int32_t>();
  for (const uint32_t sample : samples) {
    if (options_.train) transform_.augment(dataset_.image(sample), epoch_, sample, to);
    else transform_.normalise(dataset_.image(sample), to);
    to += shape.numel();
    *label++ = dataset_.labels[sample];
  }
  return batch;
}

}  // namespace godwit::data
