// RawImages: labeled images in memory as bytes. Also reads folders of IDX files.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/shape.h"

namespace godwit::data {

// Images and labels.
struct RawImages {
  Shape image_shape;            // [h, w, c]
  int64_t classes = 0;          // number of classes
  std::vector<uint8_t> pixels;  // [n, h, w, c]
  std::vector<int32_t> labels;  // [n], each in [0, classes)

  int64_t size() const { return static_cast<int64_t>(labels.size()); }  // number of images
  // Pixels of image i, [h, w, c].
  const uint8_t* image(int64_t i) const { return pixels.data() + i * image_shape.numel(); }
};

enum class Split { train, test };  // parts of a dataset

std::string default_data_folder();  // folder in which Debian's package installs Fashion-MNIST

// Reads {train,t10k}-images-idx3-ubyte and -labels-idx1-ubyte; .gz and a dot before "idx" are also accepted. Images are
// [n, h, w] (one channel) or [n, h, w, c]. The training labels define the classes; test labels must be among them.
// Throws one Error that names the folder or file and the problem. For missing data, it also names the package to
// install.
RawImages load_idx_folder(const std::string& folder, Split split);

// Mean and standard deviation of each channel over all pixels, for values scaled to [0, 1].
struct ChannelStats {
  std::vector<float> mean, std;  // [c]
};
ChannelStats channel_stats(const RawImages& dataset);  // throws if there are no images

uint64_t content_hash(const RawImages& dataset);  // hash of all pixels, labels and extents

}  // namespace godwit::data
