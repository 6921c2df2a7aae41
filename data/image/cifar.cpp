#include "data/image/cifar.h"

#include <filesystem>

#include "data/file.h"
#include "engine/check.h"

namespace godwit::data {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostCifarBytes = uint64_t{1} << 30;  // per file; the largest file of the datasets has 154 MB
constexpr size_t kPlane = 32 * 32, kChannels = 3;

struct Version {
  int32_t classes;
  size_t label_bytes;  // the last label byte is used
  std::vector<std::string> train, test;
};

const Version& version_of(const std::string& folder) {
  static const Version cifar10{
      10,
      1,
      {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
      {"test_batch.bin"}};
  static const Version cifar100{100, 2, {"train.bin"}, {"test.bin"}};
  const auto has = [&](const std::string& name) { return fs::exists(fs::path(folder) / name); };
  return has(cifar100.train[0]) || has(cifar100.test[0]) ? cifar100 : cifar10;
}

void append(const Version& version, const std::string& path, RawImages& dataset) {
  const std::vector<uint8_t> bytes = read_file(path, "a file of CIFAR records", kMostCifarBytes);
  const size_t record = version.label_bytes + kChannels * kPlane, count = bytes.size() / record;
  check(!bytes.empty(), path, ": is empty");
  check(bytes.size() % record == 0, path, ": ", bytes.size(), " bytes are not a whole number of CIFAR-",
        version.classes, " records of ", record, " bytes; the file is truncated or damaged");
  const size_t first = dataset.labels.size();
  dataset.pixels.resize((first + count) * kChannels * kPlane);
  uint8_t* to = dataset.pixels.data() + first * kChannels * kPlane;
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* planes = bytes.data() + i * record + version.label_bytes;
    const int32_t label = planes[-1];
    check(label < version.classes, path, ": label ", label, " of image ", i, " is not among the ", version.classes,
          " classes of CIFAR-", version.classes);
    dataset.labels.push_back(label);
    for (size_t p = 0; p < kPlane; ++p)
      for (size_t c = 0; c < kChannels; ++c) *to++ = planes[c * kPlane + p];
  }
}

}  // namespace

RawImages load_cifar_folder(const std::string& folder, Split split) {
  const Version& version = version_of(folder);
  RawImages dataset;
  dataset.image_shape = Shape{32, 32, 3};
  dataset.classes = version.classes;
  for (const std::string& name : split == Split::train ? version.train : version.test)
    append(version, (fs::path(folder) / name).string(), dataset);
  return dataset;
}

}  // namespace godwit::data
