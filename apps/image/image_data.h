// The images of a run: what --data names, as sources for the loaders.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "apps/report/progress.h"
#include "apps/image/image_config.h"
#include "data/image/image_dataset.h"

namespace godwit::apps {

// What the ranks of a process share, read-only.
struct ImageData {
  std::shared_ptr<const data::ImageDataset> train, test;
  Rows notes = {};  // rows for the start of a run: label, text
  std::vector<std::string> skipped = {};                        // files that cannot be used: "path: reason"
};

// Reads IDX or CIFAR files into memory, or indexes class folders of JPEGs; no folder: the distribution's Fashion-MNIST.
// Throws when the splits do not fit each other, when the images carry no information, or when a setting cannot be used
// with such data. A long indexing is reported to `progress`, if there is one.
ImageData load_image_data(const ImageConfig& config, Progress* progress);

// Writes run_dir/skipped.txt, a line per skipped file; without any, there is none. Throws when it cannot be written.
void write_skipped(const ImageData& data, const std::string& run_dir);

}  // namespace godwit::apps
