#include "apps/image/image_batches.h"

#include <utility>

namespace godwit::apps {
namespace {

Shape whole_batch(const data::ImageDataset& source, int64_t batch) {
  const Shape image = source.image_shape();
  return {batch, image[0], image[1], image[2]};
}

}  // namespace

ImageBatches::ImageBatches(const data::ImageDataset& source, const data::LoaderOptions& options)
    : loader_(source, options),
      room_(whole_batch(source, options.batch)),
      stream_(context().device.is_cuda() ? std::make_unique<Stream>() : nullptr) {}

void ImageBatches::start_epoch(int64_t epoch, int64_t first_batch) {
  if (!stream_) return loader_.start_epoch(epoch, first_batch);
  stream_->wait();
  loader_.start_epoch(epoch, first_batch);
  fetch();
}

std::optional<data::Batch> ImageBatches::next() {
  if (!stream_) return loader_.next();
  stream_->wait();
  std::optional<data::Batch> batch = std::exchange(ahead_, std::nullopt);
  if (batch) fetch();
  return batch;
}

// Allocates on the computing thread. Pending kernels of this thread may still read the recycled memory; the stream's
// copies are ordered after these kernels.
void ImageBatches::fetch() {
  stream_->submit([this, room = Tensor(room_)] {
    ahead_ = loader_.next();
    if (!ahead_) return;
    const Tensor there = room.rows(0, ahead_->images.dim(0));
    there.copy_from(ahead_->images);
    ahead_->images = there;
  });
}

}  // namespace godwit::apps
