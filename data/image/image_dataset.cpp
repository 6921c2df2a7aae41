#include "data/image/image_dataset.h"

#include <utility>

namespace godwit::data {

InMemoryDataset::InMemoryDataset(RawImages dataset, TransformOptions options)
    : dataset_(std::move(dataset)),
      transform_(dataset_.image_shape, std::move(options)),
      hash_(content_hash(dataset_)) {}

int32_t InMemoryDataset::read(int64_t sample, float* to) const {
  transform_.normalize(dataset_.image(sample), to);
  return dataset_.labels[static_cast<size_t>(sample)];
}

int32_t InMemoryDataset::read_augmented(int64_t sample, int64_t epoch, float* to) const {
  transform_.augment(dataset_.image(sample), epoch, sample, to);
  return dataset_.labels[static_cast<size_t>(sample)];
}

}  // namespace godwit::data
