// Photographs in class folders: their list, what their headers say, and which of them cannot be used.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/thread_pool.h"

namespace godwit::data {

struct ImageFile {
  std::string path;                 // below the data folder
  int32_t label = 0;                // index of its class
  int64_t bytes = 0;                // size of the file
  int32_t width = 0, height = 0, channels = 0;
  int64_t coefficient_bytes = 0;  // see JpegHeader
  std::string problem;  // why it cannot be used; empty when it can
};

// A progressive 4:2:0 image of 64 megapixels takes 183 MiB.
inline constexpr int64_t kDecodeBytes = int64_t{256} << 20;

struct IndexOptions {
  int64_t max_pixels = 64'000'000;  // larger images are not used, nor those with a side above 16,384
  int64_t most_decode_bytes = kDecodeBytes;  // images whose coefficients take more are not used
  int threads = 1;                           // that read headers
  ProgressFunction progress = {};
};

struct ImageFolder {
  std::string root;
  std::vector<std::string> classes;    // names, sorted; a label is an index
  std::string train_name, test_name;   // folders of the two splits; "" when the classes are at the root
  std::vector<std::string> unused;     // other splits that are there
  std::vector<ImageFile> train, test;  // usable, sorted by path
  std::vector<ImageFile> skipped;      // of both
};

// Lists root/train/<class>/… and the first of val, validation and test; without a train folder, the class folders at
// the root, and without a second split the training images again. Then reads all headers: how many files are usable,
// which fixes the order of training, is settled before the first step. Throws one Error when a folder cannot be read,
// the splits' classes differ, or a class has no usable training image.
ImageFolder index_image_folder(const std::string& root, const IndexOptions& options);

}  // namespace godwit::data
