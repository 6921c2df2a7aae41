#include "engine/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>

#include "engine/context.h"
#include "engine/philox.h"
#include "tests/support.h"

namespace godwit {
namespace safetensors_test {

using testing::AllOf;
using testing::HasSubstr;

Bytes file_of(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  Bytes bytes(8 + length + data_bytes, 1);
  std::memcpy(bytes.data(), &length, 8);
  std::memcpy(bytes.data() + 8, header.data(), length);
  return bytes;
}

// The error message for a file with these bytes, or with this header and number of data bytes.
std::string error_for(const Bytes& bytes) {
  TempFolder folder;
  const std::string path = folder / "x.safetensors";
  write(path, bytes);
  const std::string error = error_of([&] { load_safetensors(path); });
  EXPECT_THAT(error, HasSubstr(path));
  EXPECT_EQ(error_of([&] { map_safetensors(path); }), error) << "map_safetensors() gives another message";
  return error;
}
std::string error_for(const std::string& header, size_t data_bytes) { return error_for(file_of(header, data_bytes)); }

// The error for a file with one tensor "a" that has the given fields.
std::string error_for_tensor(const std::string& dtype, const std::string& shape, const std::string& offsets,
                             size_t data_bytes) {
  const std::string error = error_for(
      R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}", data_bytes);
  EXPECT_THAT(error, HasSubstr("tensor a"));
  return error;
}

std::vector<std::pair<std::string, Tensor>> sample_tensors() {
  return {{"bytes", Tensor::of<uint8_t>(std::vector<uint8_t>{1, 2, 3}, {3})},
          {"layer1.0.conv1.weight", Tensor::of<float>(std::vector<float>{1, -2.5f, 3e-40f, 4}, {2, 1, 2, 1})},
          {"f64", Tensor::of<double>(std::vector<double>{0.1}, {})},
          {"i32", Tensor::of<int32_t>(std::vector<int32_t>{-7, 8}, {2})},
          {"i64", Tensor::of<int64_t>(std::vector<int64_t>{int64_t{1} << 40}, {1, 1})},
          {"u32", Tensor::of<uint32_t>(std::vector<uint32_t>{4294967295u}, {1})},
          {"none", Tensor({0, 3})}};
}

TEST(Safetensors, RoundTrips) {
  TempFolder folder;
  auto tensors = sample_tensors();
  tensors.push_back({"bf16", Tensor({3}, DType::bf16)});
  std::memset(tensors.back().second.raw(), 0x3f, 6);
  tensors.push_back({"f16", Tensor({1, 2}, DType::f16)});
  std::memset(tensors.back().second.raw(), 0x42, 4);
  const std::map<std::string, std::string> metadata{{"format", "pt"}, {"quote\"é", "line\nbreak"}};
  save_safetensors(folder / "x", tensors, metadata);

  std::map<std::string, std::string> found_metadata{{"stale", "value"}};
  const auto found = load_safetensors(folder / "x", &found_metadata);
  EXPECT_EQ(found_metadata, metadata);
  ASSERT_EQ(found.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const Tensor& other = found.at(name);
    EXPECT_EQ(other.shape(), tensor.shape()) << name;
    EXPECT_EQ(other.dtype(), tensor.dtype()) << name;
    EXPECT_EQ(std::memcmp(other.raw(), tensor.raw(), static_cast<size_t>(tensor.bytes())), 0) << name;
  }
  const Bytes bytes = read(folder / "x");
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(header % 8, 0u) << "data is aligned";

  std::map<std::string, std::string> mapped_metadata;
  const auto mapped = map_safetensors(folder / "x", &mapped_metadata);
  EXPECT_EQ(mapped_metadata, metadata);
  ASSERT_EQ(mapped.size(), tensors.size());
  for (const auto& [name, tensor] : mapped) {
    EXPECT_EQ(tensor.shape(), found.at(name).shape()) << name;
    EXPECT_EQ(tensor.dtype(), found.at(name).dtype()) << name;
    EXPECT_EQ(std::memcmp(tensor.raw(), found.at(name).raw(), static_cast<size_t>(tensor.bytes())), 0) << name;
  }
}

TEST(Safetensors, MappedTensorsUseNoMemoryAndDoNotModifyTheFile) {
  TempFolder folder;
  save_safetensors(folder / "x", {{"a", Tensor::full({1000}, 2)}, {"b", Tensor::full({3}, 1)}});
  const Bytes before = read(folder / "x");
  context().pool->reset_peak();
  const int64_t in_use = context().pool->stats().bytes_in_use;
  auto mapped = map_safetensors(folder / "x");
  EXPECT_EQ(context().pool->stats().peak_bytes_in_use, in_use);
  const Tensor a = mapped.at("a"), b = mapped.at("b");
  mapped.clear();
  std::filesystem::remove(folder / "x");
  EXPECT_EQ(a.item(999), 2) << "the mapping lives as long as its tensors, even if the file is deleted";
  save_safetensors(folder / "y", {{"a", Tensor::full({1000}, 2)}, {"b", Tensor::full({3}, 1)}});
  map_safetensors(folder / "y").at("a").fill(7);
  EXPECT_EQ(read(folder / "y"), before);
  EXPECT_EQ(b.item(2), 1);
}

// The header length need not be a multiple of 8, and types may follow each other in any order.
TEST(Safetensors, MapsTensorsThatAreNotAlignedToTheirType) {
  TempFolder folder;
  Bytes bytes = file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                        R"("b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})", 9);
  const float values[2] = {1.5f, -2};
  std::memcpy(bytes.data() + bytes.size() - 8, values, 8);
  for (int pad = 0; pad < 4; ++pad) {  // spaces after the header
    write(folder / "x", bytes);
    EXPECT_EQ(map_safetensors(folder / "x").at("b").to_vector<float>(), (std::vector<float>{1.5f, -2})) << pad;
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), 8);
    bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(8 + header), ' ');
    ++header;
    std::memcpy(bytes.data(), &header, 8);
  }
}

TEST(Safetensors, BooleansAreBytes) {
  TempFolder folder;
  Bytes bytes = file_of(R"({"mask":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", 2);
  bytes[bytes.size() - 2] = 0, bytes.back() = 1;
  write(folder / "x", bytes);
  EXPECT_EQ(load_safetensors(folder / "x").at("mask").to_vector<uint8_t>(), (std::vector<uint8_t>{0, 1}));
}

TEST(Safetensors, WritesAFileWithoutTensors) {
  TempFolder folder;
  save_safetensors(folder / "x", {});
  EXPECT_TRUE(load_safetensors(folder / "x").empty());
  EXPECT_TRUE(map_safetensors(folder / "x").empty());
}

// The file was made with the Python package safetensors 0.8 and numpy by
//   save_file({"w": np.arange(6, dtype="f4").reshape(2, 3) / 4, "d": np.array([-1.5]), "h": np.array([1, -2], "f2"),
//     "i": np.array([[-7]], "i4"), "l": np.array([2**40]), "u": np.array([255, 1, 2], "u1"),
//     "v": np.array([2**32 - 1], "u4"), "s": np.array(3, "i4"), "none": np.zeros((0, 3), "f4")},
//     "python.safetensors", {"made by": "numpy"})
TEST(Safetensors, ReadsAFileOfTheReferenceImplementation) {
  std::map<std::string, std::string> metadata;
  const auto found = load_safetensors(GODWIT_SOURCE_DIR "/tests/engine/python.safetensors", &metadata);
  EXPECT_EQ(metadata.at("made by"), "numpy");
  ASSERT_EQ(found.size(), 9u);
  EXPECT_EQ(found.at("w").shape(), (Shape{2, 3}));
  EXPECT_EQ(found.at("w").to_vector<float>(), (std::vector<float>{0, 0.25f, 0.5f, 0.75f, 1, 1.25f}));
  EXPECT_EQ(found.at("d").to_vector<double>(), std::vector<double>{-1.5});
  EXPECT_EQ(found.at("h").dtype(), DType::f16);
  EXPECT_EQ(std::memcmp(found.at("h").raw(), "\x00\x3c\x00\xc0", 4), 0);
  EXPECT_EQ(found.at("i").to_vector<int32_t>(), std::vector<int32_t>{-7});
  EXPECT_EQ(found.at("i").shape(), (Shape{1, 1}));
  EXPECT_EQ(found.at("l").item(), 0x1p40);
  EXPECT_EQ(found.at("u").to_vector<uint8_t>(), (std::vector<uint8_t>{255, 1, 2}));
  EXPECT_EQ(found.at("v").to_vector<uint32_t>(), std::vector<uint32_t>{4294967295u});
  EXPECT_EQ(found.at("s").shape(), Shape());
  EXPECT_EQ(found.at("s").item(), 3);
  EXPECT_EQ(found.at("none").shape(), (Shape{0, 3}));
}

TEST(Safetensors, NamesTheErrorInAFile) {
  EXPECT_THAT(error_for({}), HasSubstr("too few"));
  EXPECT_THAT(error_for(Bytes(8)), HasSubstr("too few"));
  EXPECT_THAT(error_for(Bytes(20)), HasSubstr("header of 0 bytes"));
  EXPECT_THAT(error_for(Bytes(20, 255)), HasSubstr("the limit is"));
  Bytes cut = file_of(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", 1);
  cut.resize(30);
  EXPECT_THAT(error_for(cut), HasSubstr("truncated"));
  EXPECT_THAT(error_for("{\"a\":", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_for("{\"a\xff\":1}", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_for(std::string("{}\0{\"a\"", 7), 0), HasSubstr("not valid JSON: byte 3 is 0"));
  EXPECT_THAT(error_for("[1]", 0), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_for(" {}", 0), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_for(std::string(100000, '['), 0), HasSubstr("nested"));
  EXPECT_THAT(error_for("{}", 3), HasSubstr("last 3 bytes"));
  EXPECT_THAT(error_for(R"({"__metadata__":{"a":1}})", 0), HasSubstr("not a string"));
  EXPECT_THAT(error_for(R"({"__metadata__":[]})", 0), HasSubstr("not a JSON object"));
  TempFolder folder;
  EXPECT_THAT(error_of([&] { load_safetensors(folder / "none"); }),
              AllOf(HasSubstr("none"), HasSubstr("No such file")));
  EXPECT_THAT(error_of([&] { load_safetensors(folder.str()); }), HasSubstr("is a folder"));
  EXPECT_THAT(error_of([&] { load_safetensors("/dev/zero"); }), HasSubstr("not a regular file"));
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { load_safetensors(folder / "pipe"); }), HasSubstr("not a regular file"));
}

TEST(Safetensors, NamesTheInvalidTensor) {
  const std::string f32 = "\"F32\"";
  EXPECT_THAT(error_for(R"({"a":1})", 0), HasSubstr("tensor a"));
  EXPECT_THAT(error_for(R"({"a":{"shape":[],"data_offsets":[0,4]}})", 4), HasSubstr("no \"dtype\""));
  EXPECT_THAT(error_for(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4), HasSubstr("no list \"shape\""));
  EXPECT_THAT(error_for(R"({"a":{"dtype":"F32","shape":[]}})", 4), HasSubstr("no list \"data_offsets\""));
  EXPECT_THAT(error_for_tensor("\"F99\"", "[1]", "[0,4]", 4), HasSubstr("F99"));
  EXPECT_THAT(error_for_tensor("4", "[1]", "[0,4]", 4), HasSubstr("no \"dtype\""));
  EXPECT_THAT(error_for_tensor(f32, "[-1]", "[0,4]", 4), HasSubstr("holds -1"));
  EXPECT_THAT(error_for_tensor(f32, "[1.0]", "[0,4]", 4), HasSubstr("holds 1.0"));
  EXPECT_THAT(error_for_tensor(f32, "[[1]]", "[0,4]", 4), HasSubstr("expected integers"));
  EXPECT_THAT(error_for_tensor(f32, "[1,1,1,1,1,1,1]", "[0,4]", 4), HasSubstr("rank 7"));
  EXPECT_THAT(error_for_tensor(f32, "[4294967296,4294967296]", "[0,0]", 0), HasSubstr("too many elements"));
  EXPECT_THAT(error_for_tensor(f32, "[18446744073709551615,2]", "[0,0]", 0), HasSubstr("too many elements"));
  EXPECT_THAT(error_for_tensor(f32, "[99999999999999999999]", "[0,0]", 0), HasSubstr("expected integers"));
  EXPECT_THAT(error_for_tensor(f32, "[0,1152921504606846976,4]", "[0,0]", 0), HasSubstr("too many elements"));
  EXPECT_THAT(error_for_tensor(f32, "[2]", "[0,4]", 4), AllOf(HasSubstr("takes 8"), HasSubstr("hold 4")));
  EXPECT_THAT(error_for_tensor(f32, "[1]", "[0,4]", 3), HasSubstr("not within the 3 bytes"));
  EXPECT_THAT(error_for_tensor(f32, "[1]", "[4,0]", 4), HasSubstr("[4, 0]"));
  EXPECT_THAT(error_for_tensor(f32, "[1]", "[0,4,8]", 4), HasSubstr("3 data_offsets"));
  EXPECT_THAT(error_for_tensor(f32, "[1]", "[4,8]", 8), HasSubstr("4 bytes before"));
}

TEST(Safetensors, RefusesDuplicatesOverlapsAndHoles) {
  const auto tensor = [](const char* name, const char* offsets) {
    return std::string("\"") + name + R"(":{"dtype":"U8","shape":[2],"data_offsets":)" + offsets + "}";
  };
  EXPECT_THAT(error_for("{" + tensor("a", "[0,2]") + "," + tensor("a", "[2,4]") + "}", 4), HasSubstr("\"a\" twice"));
  EXPECT_THAT(error_for(R"({"a":{"dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1]}})", 1),
              HasSubstr("\"a.dtype\" twice"));
  EXPECT_THAT(error_for("{" + tensor("a", "[0,2]") + "," + tensor("b", "[1,3]") + "}", 3),
              AllOf(HasSubstr("tensor b"), HasSubstr("overlaps")));
  EXPECT_THAT(error_for("{" + tensor("a", "[0,2]") + "," + tensor("b", "[3,5]") + "}", 5),
              AllOf(HasSubstr("tensor b"), HasSubstr("1 bytes before")));
  EXPECT_THAT(error_for("{" + tensor("a", "[0,2]") + "}", 3), HasSubstr("last 1 bytes"));
}

// For any bytes, loading succeeds or throws Error. It must not crash (asan) or allocate what a corrupt header claims.
TEST(Safetensors, SurvivesRandomCorruption) {
  TempFolder folder;
  save_safetensors(folder / "good", sample_tensors(), {{"key", "value"}});
  const Bytes good = read(folder / "good");
  const auto size = static_cast<uint32_t>(good.size());
  uint64_t header = 0;
  std::memcpy(&header, good.data(), 8);
  RandomStream random(2, Purpose::test);
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    Bytes bytes = good;
    for (uint32_t flips = random.below(4); flips-- > 0;) {
      const auto limit = random.below(4) ? static_cast<uint32_t>(header + 8) : size;
      const char* digits = "0123456789[]{},\":-.eE";
      const auto letter = static_cast<uint8_t>(random.below(2) ? digits[random.below(21)] : random.below(256));
      bytes[random.below(limit)] = letter;
    }
    if (random.below(4) == 0) bytes.resize(random.below(size + 20), 'x');
    write(folder / "x", bytes);
    int refusals = 0;
    for (const auto read_file : {load_safetensors, map_safetensors}) try {
        for (const auto& [name, tensor] : read_file(folder / "x", nullptr)) tensor.clone();
      } catch (const Error&) {
        ++refusals;
      }
    EXPECT_NE(refusals, 1) << "load and map must agree";
    refused += refusals > 0;
  }
  EXPECT_GT(refused, 2000);
  EXPECT_LT(refused, 4500);
}

TEST(Safetensors, RefusesEveryTruncation) {
  TempFolder folder;
  save_safetensors(folder / "good", sample_tensors());
  Bytes bytes = read(folder / "good");
  while (!bytes.empty()) {
    bytes.pop_back();
    write(folder / "x", bytes);
    EXPECT_THROW(load_safetensors(folder / "x"), Error) << bytes.size();
  }
}

size_t files_in(const TempFolder& folder) {
  const auto entries = std::filesystem::directory_iterator(folder.str());
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

TEST(Safetensors, RefusesInvalidTensorsAndLeavesNoFile) {
  TempFolder folder;
  const Tensor one = Tensor::zeros({1});
  const auto error = [&](const std::vector<std::pair<std::string, Tensor>>& tensors) {
    return error_of([&] { save_safetensors(folder / "x", tensors); });
  };
  EXPECT_THAT(error({{"a", one}, {"a", one}}), HasSubstr("two tensors are named a"));
  EXPECT_THAT(error({{"__metadata__", one}}), HasSubstr("__metadata__"));
  EXPECT_THAT(error({{"a", Tensor()}}), HasSubstr("tensor a is undefined"));
  EXPECT_THAT(error({{"a\xff", one}}), HasSubstr("UTF-8"));
  EXPECT_THAT(error_of([&] { save_safetensors(folder / "none/x", {{"a", one}}); }), HasSubstr("No such file"));
  std::filesystem::create_directories(folder / "taken/by");
  EXPECT_THAT(error_of([&] { save_safetensors(folder / "taken", {{"a", one}}); }),
              HasSubstr("taken: cannot be replaced: Is a directory"));
  EXPECT_EQ(files_in(folder), 1u);
}

TEST(Safetensors, StreamsOneTensorAtATime) {
  TempFolder folder;
  const auto tensors = sample_tensors();
  save_safetensors(folder / "whole", tensors, {{"format", "pt"}});
  const int64_t before = context().pool->stats().bytes_in_use;
  std::vector<TensorSource> sources;
  for (const auto& [name, tensor] : tensors)
    sources.push_back({name, tensor.shape(), tensor.dtype(), [&, tensor = tensor] {
                         EXPECT_EQ(context().pool->stats().bytes_in_use, before) << "the last tensor was released";
                         return tensor.clone();
                       }});
  stream_safetensors(folder / "streamed", sources, {{"format", "pt"}});
  const auto bytes_of = [&](const std::string& name) {
    std::ifstream in(folder / name, std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  EXPECT_EQ(bytes_of("streamed"), bytes_of("whole"));

  sources[1].values = [] { return Tensor::zeros({77}); };
  EXPECT_THAT(error_of([&] { stream_safetensors(folder / "wrong", sources); }),
              AllOf(HasSubstr(sources[1].name), HasSubstr("[77], expected")));
  EXPECT_EQ(files_in(folder), 2u);
}

// A limit on the file size emulates a full disk. The old file must stay, and no part of the new one may remain.
TEST(Safetensors, KeepsTheOldFileWhenTheDiskIsFull) {
  TempFolder folder;
  save_safetensors(folder / "x", {{"a", Tensor::full({1}, 5)}});
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit tight{4096, old.rlim_max};
  auto* handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &tight);
  const std::string error = error_of([&] { save_safetensors(folder / "x", {{"a", Tensor::zeros({4096})}}); });
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(error, HasSubstr("cannot be written"));
  EXPECT_EQ(load_safetensors(folder / "x").at("a").item(), 5);
  EXPECT_EQ(files_in(folder), 1u);
}

// The header length limits the number of tensors; reading time must be linear in it.
TEST(Safetensors, ReadsManyTensorsInLinearTime) {
  constexpr size_t kTensors = 40000;
  std::string header = "{";
  for (size_t i = 0; i < kTensors; ++i)
    header += (i ? ",\"t" : "\"t") + std::to_string(i) + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" +
              std::to_string(i) + "," + std::to_string(i + 1) + "]}";
  TempFolder folder;
  write(folder / "x", file_of(header + "}", kTensors));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(map_safetensors(folder / "x").size(), kTensors);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15)) << "expected 0.1 s";
}

TEST(Safetensors, MessagesTruncateAndEscapeTextFromTheFile) {
  const std::string name = "\\u001b[2Jx\\n" + std::string(500000, 'y');
  for (const std::string& header :
       {"{\"" + name + R"(":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})",
        "{\"" + name + R"(":1,")" + name + "\":1}", R"({"a":{"dtype":")" + name + R"("}})",
        R"({"a":{"dtype":"U8","shape":[")" + name + R"("]}})", R"({"__metadata__":{")" + name + "\":1}}",
        "{" + std::string(500000, 'z'), std::string("{\"\x1b[2J\n")}) {
    const std::string error = error_for(header, 1);
    EXPECT_LT(error.size(), 500u);
    for (const char c : error) EXPECT_GE(static_cast<unsigned char>(c), 32) << error;
  }
}

// A sparse file: it claims more bytes than fit in memory.
TEST(Safetensors, NamesTheTensorThatDoesNotFitInMemory) {
  if (std::string(GODWIT_SANITIZE) != "") GTEST_SKIP() << "sanitizers terminate the program instead";
  TempFolder folder;
  const std::string header = R"({"big":{"dtype":"U8","shape":[8796093022208],"data_offsets":[0,8796093022208]}})";
  write(folder / "x", file_of(header, 0));
  std::error_code unsupported;
  std::filesystem::resize_file(folder / "x", 8 + header.size() + (uint64_t{1} << 43), unsupported);
  if (unsupported) GTEST_SKIP() << "the file system does not support files of 8 TiB";
  EXPECT_THAT(error_of([&] { load_safetensors(folder / "x"); }),
              AllOf(HasSubstr(folder / "x: tensor big: "), HasSubstr("out of memory: 8796093022208 bytes")));
}

}  // namespace safetensors_test
}  // namespace godwit
