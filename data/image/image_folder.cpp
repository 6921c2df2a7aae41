#include "data/image/image_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "data/image/file_list.h"
#include "data/image/jpeg.h"
#include "data/thread_pool.h"
#include "engine/check.h"
#include "engine/excerpt.h"

namespace godwit::data {
namespace {

constexpr size_t kHeads[] = {8 << 10, 128 << 10};  // sizes to try; a header with long comments may need the whole file
constexpr size_t kTail = 4 << 10;
constexpr int32_t kLongestSide = 16384;
constexpr int64_t kMostImageBytes = int64_t{1} << 28;  // per file; above the uncompressed size of 64 million pixels

class File {
 public:
  explicit File(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    check(fd_ >= 0, "cannot be read (", std::strerror(errno), ")");
    (void)::posix_fadvise(fd_, 0, 0, POSIX_FADV_RANDOM);  // disables read-ahead
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::vector<uint8_t> read(int64_t from, size_t count) const {
    std::vector<uint8_t> bytes(count);
    size_t done = 0;
    while (done < count) {
      const ssize_t got =
          ::pread(fd_, bytes.data() + done, count - done, static_cast<off_t>(from) + static_cast<off_t>(done));
      check(got >= 0 || errno == EINTR, "cannot be read (", std::strerror(errno), ")");
      check(got != 0, "cannot be read (the file shrank while it was read)");
      if (got > 0) done += static_cast<size_t>(got);
    }
    return bytes;
  }

 private:
  int fd_;
};

JpegHeader read_header(const File& in, size_t size) {
  for (const size_t head : kHeads) {
    if (head >= size) break;
    const std::vector<uint8_t> bytes = in.read(0, head);
    if (bytes[0] != 0xff || bytes[1] != 0xd8) return read_jpeg_header(bytes);  // throws
    try {
      return read_jpeg_header(bytes);
    } catch (const DecodeError&) {  // the header may be longer
    }
  }
  return read_jpeg_header(in.read(0, size));
}

// Checks the header and the end of a file.
void inspect(const std::string& path, ImageFile& file) {
  check(file.bytes <= kMostImageBytes, "has ", file.bytes, " bytes, more than the ", kMostImageBytes,
        " of the largest images");
  const File in(path);
  const auto size = static_cast<size_t>(file.bytes);
  const JpegHeader header = read_header(in, size);
  file.width = static_cast<int32_t>(header.width);
  file.height = static_cast<int32_t>(header.height);
  file.channels = header.channels;
  file.coefficient_bytes = header.coefficient_bytes;
  const auto ends = [&](size_t from) {
    from = std::max(from, static_cast<size_t>(header.data_from));
    const std::vector<uint8_t> data = in.read(static_cast<int64_t>(from), size - from);
    return has_jpeg_end(data);
  };
  check(ends(size > kTail ? size - kTail : 0) || ends(0), "is truncated");
}

void inspect_noting_problems(const std::string& root, ImageFile& file) {
  try {
    inspect(root + "/" + file.path, file);
  } catch (const std::exception& error) {
    file.problem = error.what();
  }
}

void check_same_classes(const ImageFolder& folder, const std::vector<std::string>& of_test) {
  std::vector<std::string> only_train, only_test;
  const auto& of_train = folder.classes;
  std::ranges::set_difference(of_train, of_test, std::back_inserter(only_train));
  std::ranges::set_difference(of_test, of_train, std::back_inserter(only_test));
  if (only_train.empty() && only_test.empty()) return;
  const auto only = [](const std::string& split, const std::vector<std::string>& names) {
    return names.empty() ? "" : "; only in " + split + ": " + excerpts(names);
  };
  fail("data folder ", folder.root, ": ", folder.train_name, " and ", folder.test_name, " have different classes",
       only(folder.train_name, only_train), only(folder.test_name, only_test));
}

constexpr const char* kTestNames[] = {"val", "validation", "test"};

// Throws if a folder for evaluation is next to the class folders. Its name would become a class.
void check_no_test_folder(const std::string& root) {
  const std::vector<std::string> classes = class_names(root, "");
  for (const std::string name : kTestNames)
    for (const std::string& other : classes)
      check(!is_folder(root + "/" + name + "/" + other), "data folder ", root, ": has ", name, "/", other, " and ",
            other, ", but no train; move the class folders for training to ", root, "/train");
}

void find_splits(ImageFolder& folder, bool test) {
  // Without a folder train, the class folders are at the root.
  if (!is_folder(folder.root + "/train")) return check_no_test_folder(folder.root);
  folder.train_name = folder.test_name = "train";
  if (!test) return;
  bool found = false;
  for (const char* name : kTestNames) {
    if (!is_folder(folder.root + "/" + name)) continue;
    if (found) folder.unused.push_back(name);
    else folder.test_name = name;
    found = true;
  }
}

// Why a readable image is not used, or "".
std::string too_large(const ImageFile& file, const IndexOptions& options) {
  const bool long_side = std::max(file.width, file.height) > kLongestSide;
  if (long_side || int64_t{file.width} * file.height > options.max_pixels)
    return detail::concat("is ", file.width, "x", file.height, ", more ",
                          long_side ? detail::concat("than ", kLongestSide, " on a side")
                                    : detail::concat("pixels than data.max_pixels=", options.max_pixels));
  const bool fits = file.coefficient_bytes <= options.most_decode_bytes;
  return fits ? "" : too_much_memory(file.coefficient_bytes, options.most_decode_bytes);
}

// Returns the usable files; appends the others to `skipped`.
std::vector<ImageFile> usable(std::vector<ImageFile> files, const IndexOptions& options,
                              std::vector<ImageFile>& skipped) {
  std::vector<ImageFile> good;
  for (ImageFile& file : files) {
    if (file.problem.empty()) file.problem = too_large(file, options);
    (file.problem.empty() ? good : skipped).push_back(std::move(file));
  }
  return good;
}

void check_every_class_has_images(const ImageFolder& folder) {
  check(folder.classes.size() >= 2, "data folder ", folder.root, "/", folder.train_name, ": holds ",
        folder.classes.size(), folder.classes.size() == 1 ? " class folder" : " class folders",
        ", a classifier needs at least two");
  std::vector<bool> seen(folder.classes.size());
  for (const ImageFile& file : folder.train) seen[static_cast<size_t>(file.label)] = true;
  std::vector<std::string> empty;
  for (size_t i = 0; i < seen.size(); ++i)
    if (!seen[i]) empty.push_back(folder.classes[i]);
  const auto example = [&](const std::string& beginning) -> std::string {
    for (const ImageFile& file : folder.skipped)
      if (file.path.starts_with(beginning)) return "; " + file.path + " " + file.problem;
    return "";
  };
  const std::string train = folder.train_name.empty() ? "" : folder.train_name + "/";
  check(empty.empty(), "data folder ", folder.root, ": no usable JPEG for training in class ", excerpts(empty),
        empty.empty() ? "" : example(train + empty[0] + "/"));
  check(!folder.test.empty(), "data folder ", folder.root, "/", folder.test_name, ": no usable JPEG",
        example(folder.test_name + "/"));
}

}  // namespace

ImageFolder index_image_folder(const std::string& root, const IndexOptions& options) {
  ImageFolder folder;
  folder.root = root;
  find_splits(folder, options.test);
  folder.classes = class_names(root, folder.train_name);
  std::vector<ImageFile> files = list_files(root, folder.train_name, folder.classes);
  const size_t of_train = files.size();
  const bool apart = folder.test_name != folder.train_name;
  if (apart) {
    const std::vector<std::string> of_test = class_names(root, folder.test_name);
    check_same_classes(folder, of_test);
    std::ranges::move(list_files(root, folder.test_name, of_test), std::back_inserter(files));
  }

  const auto inspect_file = [&](int64_t i) {
    ImageFile& file = files[static_cast<size_t>(i)];
    if (file.problem.empty()) inspect_noting_problems(root, file);
  };
  parallel_for_each(std::ssize(files), options.threads, inspect_file, options.progress);

  const auto middle = files.begin() + static_cast<std::ptrdiff_t>(of_train);
  const auto moved = [](auto from, auto to) {
    return std::vector<ImageFile>(std::make_move_iterator(from), std::make_move_iterator(to));
  };
  std::vector<ImageFile> second = moved(middle, files.end());
  files.erase(middle, files.end());
  folder.train = usable(std::move(files), options, folder.skipped);
  folder.test = apart ? usable(std::move(second), options, folder.skipped) : folder.train;
  check_every_class_has_images(folder);
  return folder;
}

}  // namespace godwit::data
