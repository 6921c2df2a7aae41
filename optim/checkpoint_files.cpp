#include "optim/checkpoint_files.h"

#define XXH_INLINE_ALL
#define XXH_NO_INLINE_HINTS 1  // with -Og the compiler refuses some of the forced inlining
#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "comm/gather.h"
#include "engine/excerpt.h"
#include "engine/json-inl.h"
#include "engine/json_text.h"
#include "engine/text_file.h"

namespace godwit {
namespace checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Version 1: the model in one file. Versions 1 and 2: parameters in the order of memory.
constexpr int kVersion = 3;
constexpr const char *kCorrupt = "; the checkpoint is corrupt: remove the folder ",
                     *kRemedy = " to continue from the checkpoint before it";

}  // namespace

std::string rank_file(int rank) {
  char name[32];
  std::snprintf(name, sizeof name, "rank-%05d.safetensors", rank);
  return name;
}

std::string model_file(int i, int files) {
  if (files == 1) return "model.safetensors";
  char name[64];
  std::snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", i + 1, files);
  return name;
}

std::string key_of(const StateTensor& part) {
  return part.name + "@" + std::to_string(part.begin) + (part.is_mask() ? "+" + std::to_string(part.bits) : "");
}

struct Digester::State {
  XXH3_state_t* hash = XXH3_createState();
  uint64_t bytes = 0;
};

Digester::Digester() : state_(std::make_unique<State>()) { XXH3_128bits_reset(state_->hash); }
Digester::~Digester() { XXH3_freeState(state_->hash); }

void Digester::add(const void* data, uint64_t bytes) {
  XXH3_128bits_update(state_->hash, data, bytes);
  state_->bytes += bytes;
}

Digest Digester::digest(const std::string& name) const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->hash);
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return {name, static_cast<int64_t>(state_->bytes), text};
}

Digest digest_of(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name;
  std::error_code error;
  check(fs::is_regular_file(path, error), path, ": cannot be read (no such file)");
  std::ifstream in(path, std::ios::binary);
  check(in.is_open(), path, ": cannot be read (", std::strerror(errno), ")");
  Digester digester;
  std::vector<char> block(1 << 16);
  do {
    in.read(block.data(), std::ssize(block));
    digester.add(block.data(), static_cast<uint64_t>(in.gcount()));
  } while (in);
  check(in.eof() && !in.bad(), path, ": cannot be read to its end");
  return digester.digest(name);
}

std::string exact_text(double value) {
  char text[40];
  const auto [end, error] = std::to_chars(text, text + sizeof text, std::abs(value), std::chars_format::hex);
  return (std::signbit(value) ? "-0x" : "0x") + std::string(text, end);
}

double exact_number(const std::string& text, const std::string& path) {
  const bool negative = text.starts_with('-');
  std::string_view digits = std::string_view(text).substr(negative);
  const bool hexadecimal = digits.starts_with("0x");
  if (hexadecimal) digits.remove_prefix(2);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value,
                                            hexadecimal ? std::chars_format::hex : std::chars_format::general);
  check(error == std::errc() && end == digits.data() + digits.size(), path, ": '", excerpt(text), "' is not a number");
  return negative ? -value : value;
}

void sync(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY);
  check(descriptor >= 0, path, ": cannot be opened (", std::strerror(errno), ")");
  const bool good = ::fsync(descriptor) == 0 || errno == EINVAL;  // some file systems cannot sync folders
  const int error = errno;
  ::close(descriptor);
  check(good, path, ": cannot be synced to disk (", std::strerror(error), ")");
}

void write_synced(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  check(file != nullptr, path, ": cannot be written (", std::strerror(errno), ")");
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0 &&
                       ::fsync(::fileno(file)) == 0;
  const int error = errno;
  const bool closed = std::fclose(file) == 0;
  check(written && closed, path, ": cannot be written (", std::strerror(written ? errno : error), ")");
}

std::string manifest_of(const DataParallel& replica, const Communicator& comm) {
  return dump_json(json{{"version", kVersion},
                        {"step", replica.steps()},
                        {"nodes", comm.topology.nodes},
                        {"workers_per_node", comm.topology.workers_per_node},
                        {"parameters", replica.buckets().numel()},
                        {"methods", replica.method_names()}});
}

const Digest* Manifest::find(const std::string& name) const {
  const auto found = std::find_if(files.begin(), files.end(), [&](const Digest& d) { return d.name == name; });
  return found == files.end() ? nullptr : &*found;
}

Manifest read_manifest(const std::string& folder, const DataParallel& replica, const Communicator& comm) {
  const std::string path = folder + "/" + kManifest;
  std::error_code error;
  check(fs::is_directory(folder, error), folder, ": no such checkpoint");
  check(!fs::exists(path, error) || fs::is_regular_file(path, error), path, ": is not a regular file");
  const std::string text = read_text_file(path, 16, ", so " + folder + " is no complete checkpoint");
  return parse_manifest(text, path, manifest_of(replica, comm));
}

Manifest parse_manifest(const std::string& text, const std::string& path, const std::string& own_text) {
  const std::string folder = fs::path(path).parent_path().string();
  try {
    check_json(text, path + ":", {.depth = 8, .unique_names = true});
  } catch (const Error& error) {
    fail(error.what(), kCorrupt, folder, kRemedy);
  }
  const json saved = parse_json(text), own = parse_json(own_text);
  const auto check_intact = [&](bool condition, const auto&... parts) {
    check(condition, path, ": ", parts..., kCorrupt, folder, kRemedy);
  };
  const auto field = [&](const char* name) -> const json& {
    check_intact(saved.is_object() && saved.contains(name), "has no \"", name, "\"");
    return saved.at(name);
  };
  const json& version = field("version");
  check(version.is_number_integer() && version >= 1 && version <= kVersion, path, ": version ",
        excerpt(dump_json(version)), " is not readable; this program reads versions 1 to ", kVersion,
        "; continue with the program that wrote it");
  const auto same = [&](const char* name, const std::string& noun, const std::string& remedy) {
    check(field(name) == own.at(name), folder, ": was saved by a run with ", excerpt(dump_json(field(name))), " ", noun,
          ", this run has ", dump_json(own.at(name)), "; ", remedy);
  };
  same("methods", "as optimizer, exchange and sharding",
       "resume with its optimizer.name, exchange.name and exchange.sharding");
  same("parameters", "parameters", "resume with the same model");
  const auto count = [&](const char* name) {
    const json& value = field(name);
    check_intact(value.is_number_integer() && value >= 1 && value <= (1 << 20), "\"", name, "\" is ",
                 excerpt(dump_json(value)), ", expected an integer from 1 to ", 1 << 20);
    return value.get<int>();
  };
  Manifest manifest{version.get<int>() >= 3, {count("nodes"), count("workers_per_node")}, {}};
  check_intact(int64_t{manifest.topology.nodes} * manifest.topology.workers_per_node <= (1 << 20), "has ",
               manifest.topology.nodes, " × ", manifest.topology.workers_per_node, " workers, expected at most ",
               1 << 20);
  check_intact(field("files").is_object(), "\"files\" is ", excerpt(dump_json(field("files"))), ", expected an object");
  for (const auto& [name, entry] : field("files").items()) {
    check_intact(entry.is_object() && entry.contains("bytes") && entry.at("bytes").is_number_unsigned() &&
                     entry.contains("xxh3_128") && entry.at("xxh3_128").is_string(),
                 "the entry of ", excerpt(name), " needs \"bytes\" and \"xxh3_128\"");
    check_intact(name.find('/') == std::string::npos, "\"files\" has ", excerpt(name),
                 ", expected a file name without '/'");
    manifest.files.push_back({name, entry.at("bytes").get<int64_t>(), entry.at("xxh3_128").get<std::string>()});
  }
  // Otherwise, state would be lost.
  const int workers = manifest.topology.world();
  check_intact(!manifest.find(rank_file(workers)), "lists ", rank_file(workers), ", but the run had ", workers,
               workers == 1 ? " worker" : " workers");
  return manifest;
}

void check_file(const std::string& folder, const std::string& name, const Manifest& manifest) {
  const std::string path = folder + "/" + name;
  const Digest* listed = manifest.find(name);
  check(listed != nullptr, folder, "/", kManifest, ": does not list ", name, kCorrupt, folder, kRemedy);
  std::error_code error;
  check(fs::is_regular_file(path, error), path, ": cannot be read (no such file)", kCorrupt, folder, kRemedy);
  const Digest digest = digest_of(folder, name);
  check(listed->bytes == digest.bytes, path, ": has ", digest.bytes, " bytes, but the manifest says ", listed->bytes,
        kCorrupt, folder, kRemedy);
  check(listed->xxh3_128 == digest.xxh3_128, path, ": its checksum differs from that of the manifest", kCorrupt, folder,
        kRemedy);
}

std::vector<StateTensor> parts_of(const DataParallel& replica, const CheckpointExtras& extras) {
  std::vector<StateTensor> all;
  const auto add = [&](const std::string& prefix, const std::vector<StateTensor>& parts) {
    for (StateTensor part : parts) {
      if (part.values.numel() == 0) continue;
      part.name = prefix + part.name;
      all.push_back(std::move(part));
    }
  };
  add("optimizer/", replica.optimizer().state());
  add("exchange/", replica.optimizer().exchange_state());
  add("extra/", extras.state);
  return all;
}

void on_all(Group& world, const std::function<void()>& f) {
  std::string problem;
  try {
    const auto busy = world.control()->busy();
    f();
  } catch (const std::exception& error) {
    problem = error.what();
    if (problem.empty()) problem = "unknown error";
  }
  const std::vector<std::vector<std::string>> all = gather_texts(world, {problem}, "checkpoint/errors");
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (const std::string& text = all[rank].front(); !text.empty())
      throw CheckpointFailed(world.size() > 1 ? detail::concat("rank ", rank, ": ", text) : text);
}

}  // namespace checkpoint

std::optional<int64_t> checkpoint_step(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || step < 0) return std::nullopt;
  return step;
}

std::map<int64_t, std::string> checkpoints_in(const std::string& folder, bool complete) {
  namespace fs = std::filesystem;
  std::map<int64_t, std::string> all;
  std::error_code error;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    const fs::directory_entry& entry = *at;
    const std::string name = entry.path().filename().string();
    const std::optional<int64_t> step = checkpoint_step(name);
    if (!step) continue;
    std::error_code unreadable;
    if (fs::exists(entry.path() / checkpoint::kManifest, unreadable) == complete) all[*step] = entry.path().string();
    if (unreadable)
      throw CheckpointFailed(detail::concat(entry.path().string(), ": cannot be read (", unreadable.message(), ")"));
  }
  std::error_code ignored;
  const bool absent = error == std::errc::not_a_directory ||
                      (error == std::errc::no_such_file_or_directory && !fs::is_symlink(folder, ignored));
  if (error && !absent) throw CheckpointFailed(detail::concat(folder, ": cannot be read (", error.message(), ")"));
  return all;
}

std::string newest_checkpoint(const std::string& folder) {
  const std::map<int64_t, std::string> all = checkpoints_in(folder);
  return all.empty() ? "" : all.rbegin()->second;
}

}  // namespace godwit
