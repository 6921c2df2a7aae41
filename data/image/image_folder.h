// Index of a folder that contains class folders with photographs: files, header fields, and unusable files.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/thread_pool.h"

namespace godwit::data {

// A file of an image folder.
struct ImageFile {
  std::string path;                             // relative to the data folder
  int32_t label = 0;                            // class index
  int64_t bytes = 0;                            // file size
  int32_t width = 0, height = 0, channels = 0;  // values of the header: pixels; 1, 3 or 4 channels
  int64_t coefficient_bytes = 0;                // see JpegHeader
  std::string problem;                          // reason why the file is unusable; empty if it is usable
};

// A progressive 4:2:0 image of 64 megapixels needs 183 MiB.
inline constexpr int64_t kDecodeBytes = int64_t{256} << 20;

// Limits and threads of index_image_folder().
struct IndexOptions {
  int64_t max_pixels = 64'000'000;  // skip images that are larger or have a side above 16,384
  int64_t most_decode_bytes = kDecodeBytes;  // bytes; skip images whose coefficients need more memory
  int threads = 1;                           // threads that read headers
  bool test = true;                          // false: list only the training images, and use them for both splits
  ProgressFunction progress = {};
};

// Classes and files of an image folder.
struct ImageFolder {
  std::string root;                    // the data folder
  std::vector<std::string> classes;    // sorted names; labels index this list
  std::string train_name, test_name;   // folder names of the two splits; "" if the class folders are at the root
  std::vector<std::string> unused;     // other splits in the folder
  std::vector<ImageFile> train, test;  // usable files, sorted by path
  std::vector<ImageFile> skipped;      // unusable files of both splits
};

// Lists root/train/<class>/… and the first existing folder of val, validation and test. Without a train folder, the
// class folders are at the root. Without a second split, the training images are used for both. All headers are then
// read, so that the number of usable files and the training order are fixed before the first step. Throws one Error if
// a folder cannot be read, the splits have different classes, or a class has no usable training image.
ImageFolder index_image_folder(const std::string& root, const IndexOptions& options);

}  // namespace godwit::data
