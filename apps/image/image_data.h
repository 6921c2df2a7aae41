// The images of a run: datasets for the loaders. They are read from --data.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "apps/report/progress.h"
#include "apps/image/image_config.h"
#include "data/image/image_dataset.h"

namespace godwit::apps {

// Read-only data shared by all ranks of a process.
struct ImageData {
  std::shared_ptr<const data::ImageDataset> train, test;
  Rows notes = {};  // printed at the start of a run
  std::vector<std::string> skipped = {};                        // unusable files, "path: reason"
};

// Reads IDX or CIFAR files into memory, or indexes class folders of JPEGs. An empty path selects Debian's Fashion-MNIST
// package. Throws if the splits do not match, if all pixels of a channel are equal, or if an option does not apply to
// the data. Reports long indexing to `progress` if `progress` is not null.
ImageData load_image_data(const ImageConfig& config, Progress* progress);

// Writes run_dir/skipped.txt with one line per skipped file, if files were skipped. Throws if the file cannot be
// written.
void write_skipped(const ImageData& data, const std::string& run_dir);

}  // namespace godwit::apps
