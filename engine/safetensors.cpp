#include "engine/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <tuple>

#include "engine/check.h"
#include "engine/excerpt.h"
#include "engine/json-inl.h"
#include "engine/json_text.h"

namespace godwit {
namespace {

using json = nlohmann::json;
static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeader = 100'000'000;     // limit of the reference implementation
constexpr int kMaxDepth = 8;                     // descriptions need 3; limits the memory for a hostile header
constexpr int kReading = O_RDONLY | O_NONBLOCK;  // opening a pipe must not block; only regular files are accepted
constexpr const char* kMetadata = "__metadata__";

struct Name {
  const char* text;
  DType dtype;
};
constexpr Name kTypes[] = {{"F64", DType::f64}, {"F32", DType::f32}, {"F16", DType::f16}, {"BF16", DType::bf16},
                           {"I64", DType::i64}, {"I32", DType::i32}, {"U32", DType::u32}, {"U8", DType::u8},
                           {"BOOL", DType::u8}};  // files are written with the first name of a type

// The text of errno. The arguments of check() are evaluated in any order, so an earlier statement must set errno.
std::string error_text() { return std::strerror(errno); }

// An owned file descriptor. Deletes a temporary file unless it was renamed.
class File {
 public:
  File(const std::string& path, int flags) : path_(path), descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    check(descriptor_ >= 0, path, ": cannot be opened: ", error_text());
    temporary_ = flags & O_CREAT;
  }
  ~File() {
    ::close(descriptor_);
    if (temporary_) ::unlink(path_.c_str());
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  uint64_t length() const {
    struct stat status {};
    const int result = ::fstat(descriptor_, &status);
    check(result == 0, path_, ": ", error_text());
    check(S_ISREG(status.st_mode), path_, S_ISDIR(status.st_mode) ? ": is a folder" : ": is not a regular file");
    return static_cast<uint64_t>(status.st_size);
  }

  void read(void* to, uint64_t count) {
    for (auto* at = static_cast<char*>(to); count > 0;) {
      const ssize_t got = ::read(descriptor_, at, count);
      if (got < 0 && errno == EINTR) continue;
      check(got >= 0, path_, ": cannot be read: ", error_text());
      check(got > 0, path_, ": was truncated while it was read");
      at += got;
      count -= static_cast<uint64_t>(got);
    }
  }

  // Writes in blocks. The disk writes one block while the next one is copied. Calls written(data, bytes) for each.
  template <class F>
  void write(const void* from, uint64_t count, F&& written) {
    constexpr uint64_t kBlock = 4 << 20;
    for (auto* at = static_cast<const char*>(from); count > 0;) {
      const ssize_t put = ::write(descriptor_, at, std::min(count, kBlock));
      if (put < 0 && errno == EINTR) continue;
      check(put >= 0, path_, ": cannot be written: ", error_text());
      ::sync_file_range(descriptor_, position_, put, SYNC_FILE_RANGE_WRITE);  // fsync() reports its errors
      written(at, static_cast<uint64_t>(put));
      at += put;
      position_ += put;
      count -= static_cast<uint64_t>(put);
    }
  }

  // Maps the first `length` bytes as private memory: writes do not reach the file.
  Buffer map(uint64_t length) const {
    // Without MAP_NORESERVE, Linux may refuse a file that is larger than the memory, although pages are only read.
    void* data = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor_, 0);
    check(data != MAP_FAILED, path_, ": cannot be mapped into memory: ", error_text());
    return Buffer(std::shared_ptr<std::byte>(static_cast<std::byte*>(data),
                                             [length](std::byte* begin) { ::munmap(begin, length); }),
                  static_cast<int64_t>(length));
  }

  void sync() {
    const int result = ::fsync(descriptor_);
    check(result == 0, path_, ": cannot be written: ", error_text());
  }

  void rename_to(const std::string& path) {
    const int result = ::rename(path_.c_str(), path.c_str());
    check(result == 0, path, ": cannot be replaced: ", error_text());
    temporary_ = false;
  }

 private:
  std::string path_;
  int descriptor_;
  bool temporary_ = false;
  off_t position_ = 0;  // offset of the next write
};

// Syncs a rename in the folder to disk, if the file system supports it.
void sync_folder(const std::string& folder) {
  const int descriptor = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

struct Entry {
  std::string name;
  DType dtype;
  Shape shape;
  uint64_t begin, end;  // offsets in the data section; read_header() makes them offsets in the file
};

// Refuses deep nesting, and duplicate names, which JSON allows and of which the library would keep one.
json parse_header(const std::string& path, const std::string& text) {
  check_json(text, path + ": its header", {.depth = kMaxDepth, .unique_names = true});
  json header = parse_json(text);
  check(text[0] == '{' && header.is_object(), path, ": its header is not a JSON object");
  return header;
}

std::vector<uint64_t> read_list(const json& value, const char* key, const std::string& where) {
  check(value.contains(key) && value[key].is_array(), where, "has no list \"", key, "\"");
  std::vector<uint64_t> numbers;
  for (const json& number : value[key]) {
    if (!number.is_number_unsigned())
      fail(where, key, " holds ", excerpt(dump_json(number)), ", expected integers >= 0");
    numbers.push_back(number.get<uint64_t>());
  }
  return numbers;
}

DType read_dtype(const json& value, const std::string& where) {
  check(value.contains("dtype") && value["dtype"].is_string(), where, "has no \"dtype\"");
  const std::string text = value["dtype"].get<std::string>();
  for (const Name& type : kTypes)
    if (text == type.text) return type.dtype;
  fail(where, "dtype ", excerpt(text), " is not supported; expected F64, F32, F16, BF16, I64, I32, U32, U8 or BOOL");
}

Entry read_entry(const std::string& path, const std::string& name, const json& value, uint64_t data_bytes) {
  const std::string where = path + ": tensor " + excerpt(name) + ": ";
  check(value.is_object(), where, "is not described by a JSON object");
  Entry entry{name, read_dtype(value, where), {}, 0, 0};
  const auto extents = read_list(value, "shape", where), offsets = read_list(value, "data_offsets", where);
  check(extents.size() <= Shape::kMaxRank, where, "rank ", extents.size(), " is above the limit of ", Shape::kMaxRank);
  check(offsets.size() == 2, where, "has ", offsets.size(), " data_offsets, expected a begin and an end");
  entry.begin = offsets[0];
  entry.end = offsets[1];
  check(entry.begin <= entry.end && entry.end <= data_bytes, where, "data_offsets [", entry.begin, ", ", entry.end,
        "] are not within the ", data_bytes, " bytes of data (truncated?)");

  constexpr uint64_t kMaxElements = uint64_t{1} << 59;  // prevents overflow of byte counts
  uint64_t total = 1;
  bool none = false;
  std::vector<int64_t> checked;
  for (uint64_t extent : extents) {
    check(extent <= kMaxElements / total, where, "shape ", dump_json(value["shape"]), " has too many elements");
    if (extent == 0) none = true;
    else total *= extent;
    checked.push_back(static_cast<int64_t>(extent));
  }
  const uint64_t bytes = none ? 0 : total * static_cast<uint64_t>(size_of(entry.dtype));
  check(bytes == entry.end - entry.begin, where, "shape ", dump_json(value["shape"]), " of ", entry.dtype, " takes ",
        bytes, " bytes, its data_offsets hold ", entry.end - entry.begin);
  entry.shape = Shape(checked);
  return entry;
}

void read_metadata(const std::string& path, const json& value, std::map<std::string, std::string>* metadata) {
  check(value.is_object(), path, ": ", kMetadata, " is not a JSON object");
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) fail(path, ": ", kMetadata, " \"", excerpt(key), "\" is not a string");
    if (metadata) (*metadata)[key] = text.get<std::string>();
  }
}

// Returns the tensors in order of their data, with byte offsets in the file. Leaves the file position at the data.
std::vector<Entry> read_header(const std::string& path, File& file, std::map<std::string, std::string>* metadata) {
  const uint64_t length = file.length();
  check(length > kLengthBytes, path, ": ", length, " bytes are too few for a safetensors file");
  uint64_t header_bytes = 0;
  file.read(&header_bytes, kLengthBytes);
  check(header_bytes <= kMaxHeader, path, ": declares a header of ", header_bytes, " bytes, the limit is ", kMaxHeader,
        " (is it a safetensors file?)");
  check(header_bytes > 0 && header_bytes <= length - kLengthBytes, path, ": declares a header of ", header_bytes,
        " bytes, but ", length - kLengthBytes, " follow (truncated?)");
  std::string text(header_bytes, ' ');
  file.read(text.data(), header_bytes);
  const json header = parse_header(path, text);
  const uint64_t data_bytes = length - kLengthBytes - header_bytes;

  std::vector<Entry> entries;
  if (metadata) metadata->clear();
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadata) read_metadata(path, value, metadata);
    else entries.push_back(read_entry(path, name, value, data_bytes));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t covered = 0;
  for (const Entry& entry : entries) {
    if (entry.begin < covered)
      fail(path, ": tensor ", excerpt(entry.name), ": its data overlaps that of another tensor");
    if (entry.begin > covered)
      fail(path, ": tensor ", excerpt(entry.name), ": ", entry.begin - covered,
           " bytes before its data belong to no tensor");
    covered = entry.end;
  }
  check(covered == data_bytes, path, ": the last ", data_bytes - covered, " bytes belong to no tensor");
  for (Entry& entry : entries) entry.begin += length - data_bytes, entry.end += length - data_bytes;
  return entries;
}

Tensor tensor_for(const std::string& path, const Entry& entry) {
  return with_place(path + ": tensor " + excerpt(entry.name),
                    [&] { return Tensor(entry.shape, entry.dtype, kCpu); });  // out of memory
}

std::string tensor_header(const std::vector<TensorSource>& tensors, const std::map<std::string, std::string>& metadata,
                          const std::string& path) {
  json header = json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  int64_t offset = 0;
  for (const auto& [name, shape, dtype, values] : tensors) {
    check(name != kMetadata && !header.contains(name), path, ": two tensors are named ", name);
    const auto type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [dtype = dtype](const Name& entry) { return entry.dtype == dtype; });
    const int64_t bytes = shape.numel() * size_of(dtype);
    header[name] = {{"dtype", type->text},
                    {"shape", std::vector<int64_t>(shape.begin(), shape.end())},
                    {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  try {
    std::string text = dump_json(header);
    text.append((8 - text.size() % 8) % 8, ' ');  // data begins at a multiple of eight
    check(text.size() <= kMaxHeader, path, ": the header has ", text.size(), " bytes, the limit is ", kMaxHeader);
    return text;
  } catch (const json::exception& error) {
    fail(path, ": a name or text of the metadata is not UTF-8: ", error.what());
  }
}

}  // namespace

std::map<std::string, Tensor> load_safetensors(const std::string& path, std::map<std::string, std::string>* metadata) {
  File file(path, kReading);
  std::map<std::string, Tensor> tensors;
  for (const Entry& entry : read_header(path, file, metadata)) {
    Tensor tensor = tensor_for(path, entry);
    file.read(tensor.raw(), entry.end - entry.begin);
    tensors.emplace(entry.name, std::move(tensor));
  }
  return tensors;
}

std::map<std::string, Tensor> map_safetensors(const std::string& path, std::map<std::string, std::string>* metadata) {
  File file(path, kReading);
  const std::vector<Entry> entries = read_header(path, file, metadata);
  std::map<std::string, Tensor> tensors;
  if (entries.empty()) return tensors;
  const Buffer mapping = file.map(entries.back().end);
  for (const Entry& entry : entries) {
    const auto begin = static_cast<int64_t>(entry.begin);
    Tensor tensor;
    if (begin % size_of(entry.dtype) == 0) {
      tensor = Tensor::over(mapping, begin, entry.shape, entry.dtype);
    } else {
      tensor = tensor_for(path, entry);
      std::memcpy(tensor.raw(), mapping.data() + begin, entry.end - entry.begin);
    }
    tensors.emplace(entry.name, std::move(tensor));
  }
  return tensors;
}

void save_safetensors(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                      const std::map<std::string, std::string>& metadata,
                      const std::function<void(const void* data, uint64_t bytes)>& written) {
  std::vector<TensorSource> sources;
  for (const auto& [name, tensor] : tensors) {
    check(tensor.defined(), path, ": tensor ", name, " is undefined");
    sources.push_back({name, tensor.shape(), tensor.dtype(), [tensor = tensor] { return tensor; }});
  }
  stream_safetensors(path, sources, metadata, written);
}

void stream_safetensors(const std::string& path, const std::vector<TensorSource>& tensors,
                        const std::map<std::string, std::string>& metadata,
                        const std::function<void(const void* data, uint64_t bytes)>& written) {
  auto sorted = tensors;  // widest types first, so that every tensor is aligned to its type
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return size_of(a.dtype) > size_of(b.dtype); });
  const std::string header = tensor_header(sorted, metadata, path);
  const uint64_t header_bytes = header.size();

  static std::atomic<uint64_t> saves{0};  // ranks are threads of one process: temporary names must be unique
  const std::string temporary = path + ".tmp" + std::to_string(::getpid()) + "-" + std::to_string(saves++);
  File file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
  const auto write = [&](const void* data, uint64_t bytes) {
    file.write(data, bytes, [&](const void* block, uint64_t size) {
      if (written) written(block, size);
    });
  };
  write(&header_bytes, kLengthBytes);
  write(header.data(), header_bytes);
  for (const TensorSource& source : sorted) {
    const Tensor here = source.values().to(kCpu);
    check(here.shape() == source.shape && here.dtype() == source.dtype, path, ": tensor ", source.name, " is ",
          here.dtype(), " ", here.shape(), ", expected ", source.dtype, " ", source.shape);
    write(here.raw(), static_cast<uint64_t>(here.bytes()));
  }
  file.sync();
  file.rename_to(path);
  sync_folder(std::filesystem::path(path).parent_path().string());
}

}  // namespace godwit
