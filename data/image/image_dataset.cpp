#include "data/image/image_dataset.h"

#include <iterator>
#include <utility>

#include "engine/check.h"

namespace godwit::data {

InMemoryDataset::InMemoryDataset(RawImages dataset, TransformOptions options)
    : dataset_(std::move(dataset)),
      transform_(dataset_.image_shape, std::move(options)),
      hash_(content_hash(dataset_)) {
  const int64_t pixels = dataset_.size() * dataset_.image_shape.numel();
  check(std::ssize(dataset_.pixels) == pixels, "images: ", dataset_.size(), " labels and images of ",
        dataset_.image_shape, " need ", pixels, " pixel values, there are ", dataset_.pixels.size());
  for (const int32_t label : dataset_.labels)
    check(label >= 0 && label < dataset_.classes, "images: a label is ", label, "; expected 0 to ",
          dataset_.classes - 1);
}

int32_t InMemoryDataset::read(int64_t sample, float* to) const {
  transform_.normalize(dataset_.image(sample), to);
  return dataset_.labels[static_cast<size_t>(sample)];
}

int32_t InMemoryDataset::read_augmented(int64_t sample, int64_t epoch, float* to) const {
  transform_.augment(dataset_.image(sample), epoch, sample, to);
  return dataset_.labels[static_cast<size_t>(sample)];
}

}  // namespace godwit::data
