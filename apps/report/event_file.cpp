#include "apps/report/event_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>

#include "engine/check.h"

namespace godwit::apps {
namespace {

constexpr std::array<uint32_t, 256> kCrcTable = [] {  // Castagnoli polynomial, reflected
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ (c & 1 ? 0x82F63B78u : 0);
    table[i] = c;
  }
  return table;
}();

// TFRecord stores CRCs rotated and offset.
uint32_t masked_crc32c(std::string_view data) {
  uint32_t crc = ~0u;
  for (const char byte : data) crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<uint8_t>(byte)) & 0xFF];
  return std::rotr(~crc, 15) + 0xA282EAD8u;
}

template <class T>
std::string little_endian(T value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

// Protocol-buffer encoding: the wire types of a field.
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes += static_cast<char>(value);
}
std::string varint_field(uint64_t number, int64_t value) {  // proto3 leaves out zeros
  return value == 0 ? "" : varint(number << 3) + varint(static_cast<uint64_t>(value));
}
std::string double_field(uint64_t number, double value) {
  return varint(number << 3 | 1) + little_endian(std::bit_cast<uint64_t>(value));
}
std::string float_field(uint64_t number, double value) {
  return varint(number << 3 | 5) + little_endian(std::bit_cast<uint32_t>(static_cast<float>(value)));
}
std::string bytes_field(uint64_t number, std::string_view value) {
  return varint(number << 3 | 2) + varint(value.size()) + std::string(value);
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

constexpr std::string_view kPrefix = "events.out.tfevents.";

AppendedFile create(const std::string& dir) {
  auto second = static_cast<int64_t>(seconds_since_1970());
  std::error_code error;
  for (std::filesystem::directory_iterator at(dir, error); !error && at != std::filesystem::directory_iterator();
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    int64_t other = 0;
    if (name.starts_with(kPrefix) &&
        std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), other).ec == std::errc())
      second = std::max(second, other + 1);
  }
  char host[256] = "";
  (void)::gethostname(host, sizeof host - 1);
  std::string path = detail::concat(dir, "/", kPrefix, second, ".", host, ".", ::getpid());
  std::FILE* const file = std::fopen(path.c_str(), "wbx");
  if (!file) fail_writing(path, errno);
  return AppendedFile(file, std::move(path));
}

}  // namespace

std::string tfrecord(std::string_view data) {
  const std::string length = little_endian(uint64_t{data.size()});
  return length + little_endian(masked_crc32c(length)) + std::string(data) + little_endian(masked_crc32c(data));
}

std::string version_event(double wall_time) { return double_field(1, wall_time) + bytes_field(3, "brain.Event:2"); }

std::string session_start_event(double wall_time, int64_t step) {
  constexpr int64_t kStart = 1;
  return double_field(1, wall_time) + varint_field(2, step) + bytes_field(7, varint_field(1, kStart));
}

std::string scalars_event(double wall_time, int64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) summary += bytes_field(1, bytes_field(1, tag) + float_field(2, value));
  return double_field(1, wall_time) + varint_field(2, step) + bytes_field(5, summary);
}

EventFile::EventFile(const std::string& dir, std::optional<int64_t> resumed_step) : file_(create(dir)) {
  file_.append(tfrecord(version_event(seconds_since_1970())));
  if (resumed_step) file_.append(tfrecord(session_start_event(seconds_since_1970(), *resumed_step + 1)));
}

void EventFile::scalars(int64_t step, const Scalars& scalars) {
  file_.append(tfrecord(scalars_event(seconds_since_1970(), step, scalars)));
}

}  // namespace godwit::apps
