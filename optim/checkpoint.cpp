#include "optim/checkpoint.h"

#define XXH_INLINE_ALL
#define XXH_NO_INLINE_HINTS 1  // with -Og the compiler refuses some of the forced inlining
#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "comm/consistency.h"
#include "comm/gather.h"
#include "engine/dtype.h"
#include "engine/excerpt.h"
#include "engine/json-inl.h"
#include "engine/json_text.h"
#include "engine/safetensors.h"

namespace godwit {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kVersion = 1;
constexpr const char* kManifest = "manifest.json";
constexpr const char* kModel = "model.safetensors";

std::string rank_file(int rank) {
  char name[32];
  std::snprintf(name, sizeof name, "rank-%05d.safetensors", rank);
  return name;
}

// Sums and checksums of a file's bytes.
struct Digest {
  int64_t bytes = 0;
  std::string xxh3_128;
};

Digest digest_of(const std::string& path) {
  std::error_code error;
  check(fs::is_regular_file(path, error), path, ": cannot be read (no such file)");
  std::ifstream in(path, std::ios::binary);
  check(in.is_open(), path, ": cannot be read (", std::strerror(errno), ")");
  XXH3_state_t* state = XXH3_createState();
  XXH3_128bits_reset(state);
  std::vector<char> block(1 << 20);
  Digest digest;
  do {
    in.read(block.data(), std::ssize(block));
    XXH3_128bits_update(state, block.data(), static_cast<size_t>(in.gcount()));
    digest.bytes += in.gcount();
  } while (in);
  const bool complete = in.eof() && !in.bad();
  const XXH128_hash_t hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  check(complete, path, ": cannot be read to its end");
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  digest.xxh3_128 = text;
  return digest;
}

void sync_folder(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY);
  check(descriptor >= 0, folder, ": cannot be opened (", std::strerror(errno), ")");
  const bool good = ::fsync(descriptor) == 0 || errno == EINVAL;  // some file systems cannot sync folders
  const int error = errno;
  ::close(descriptor);
  check(good, folder, ": cannot be synced to disk (", std::strerror(error), ")");
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

// Calls f on this rank; throws on every rank if it throws on some rank.
template <class F>
void on_all(Group& world, const F& f) {
  std::string problem;
  try {
    const auto busy = world.busy();
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

// State parts with the names under which they are saved.
std::vector<StateTensor> parts_of(const DataParallel& replica, const CheckpointExtras& extras) {
  std::vector<StateTensor> all;
  const auto add = [&](const std::string& prefix, const std::vector<StateTensor>& parts) {
    for (StateTensor part : parts) {
      part.name = prefix + part.name;
      all.push_back(std::move(part));
    }
  };
  add("optimizer/", replica.optimizer().state());
  add("exchange/", replica.optimizer().exchange_state());
  add("extra/", extras.state);
  return all;
}

std::string key_of(const StateTensor& part) { return part.name + "@" + std::to_string(part.begin); }

// A number as text from which the same bits are read.
std::string exact(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%a", value);
  return text;
}

bool is_mask(const Tensor& values) { return values.dtype() == DType::u32; }

// Elements of a part. The last word of a mask has unused bits, which would belong to the part that begins at `next`.
int64_t elements_of(const Tensor& values, int64_t begin, int64_t next) {
  return is_mask(values) ? std::min(32 * values.numel(), next - begin) : values.numel();
}

// Elements of saved parts by name, for parts of other sizes (another bucket size).
class SavedParts {
 public:
  // numel: length of the parameter vector.
  SavedParts(const std::map<std::string, Tensor>& tensors, int64_t numel) : numel_(numel) {
    for (const auto& [key, values] : tensors)
      if (const size_t at = key.rfind('@'); at != std::string::npos)
        parts_[key.substr(0, at)][std::strtoll(key.c_str() + at + 1, nullptr, 10)] = values;
  }

  // Copies the elements that are present and not yet `done`; returns how many are still missing.
  int64_t fill(const StateTensor& part, std::vector<bool>& done) const {
    const auto found = parts_.find(part.name);
    const int64_t all = std::ssize(done);
    if (found != parts_.end()) {
      for (auto saved = found->second.begin(); saved != found->second.end(); ++saved) {
        const auto& [from, values] = *saved;
        check(values.dtype() == part.values.dtype(), part.name, " is saved as ", values.dtype(),
              ", but this run keeps ", part.values.dtype(), "; resume with the options of the saved run");
        const auto next = std::next(saved);
        const int64_t elements = elements_of(values, from, next == found->second.end() ? numel_ : next->first);
        copy(values, from, part, std::max(from, part.begin), std::min(from + elements, part.begin + all), done);
      }
    }
    return std::count(done.begin(), done.end(), false);
  }

 private:
  // Elements [begin, end) of the parameter vector, from values that begin at element `first`.
  static void copy(const Tensor& from, int64_t first, const StateTensor& to, int64_t begin, int64_t end,
                   std::vector<bool>& done) {
    if (begin >= end) return;
    const auto size = static_cast<size_t>(size_of(to.values.dtype()));
    const auto* source = static_cast<const uint8_t*>(from.address());
    auto* target = static_cast<uint8_t*>(to.values.address());
    const auto* source_words = static_cast<const uint32_t*>(from.address());
    auto* target_words = static_cast<uint32_t*>(to.values.address());
    for (int64_t i = begin; i < end; ++i) {
      const int64_t there = i - first, here = i - to.begin;
      if (done[static_cast<size_t>(here)]) continue;
      done[static_cast<size_t>(here)] = true;
      if (is_mask(to.values)) target_words[here / 32] |= (source_words[there / 32] >> (there % 32) & 1) << (here % 32);
      else std::memcpy(target + static_cast<size_t>(here) * size, source + static_cast<size_t>(there) * size, size);
    }
  }

  int64_t numel_;
  std::map<std::string, std::map<int64_t, Tensor>> parts_;  // by name and first element
};

json manifest_of(const DataParallel& replica, const Communicator& comm) {
  return {{"version", kVersion},
          {"step", replica.steps()},
          {"nodes", comm.topology.nodes},
          {"workers_per_node", comm.topology.workers_per_node},
          {"parameters", replica.buckets().numel()},
          {"methods", replica.method_names()}};
}

// Reads the manifest and checks that it is of this run.
json read_manifest(const std::string& folder, const DataParallel& replica, const Communicator& comm) {
  const std::string path = folder + "/" + kManifest;
  std::error_code error;
  check(fs::is_directory(folder, error), folder, ": no such checkpoint");
  std::ifstream in(path, std::ios::binary);
  check(in.is_open(), path, ": cannot be read (", std::strerror(errno), "), so ", folder, " is no complete checkpoint");
  std::string text(1 << 20, '\0');
  in.read(text.data(), std::ssize(text));
  text.resize(static_cast<size_t>(in.gcount()));
  check_json(text, path + ":", {.depth = 8, .unique_names = true});
  const json saved = parse_json(text), own = manifest_of(replica, comm);
  const auto field = [&](const char* name) -> const json& {
    check(saved.is_object() && saved.contains(name), path, ": has no \"", name, "\"");
    return saved.at(name);
  };
  check(field("version").is_number_integer() && field("version") == kVersion, path, ": version ",
        excerpt(dump_json(field("version"))), " is not readable; this program reads version ", kVersion);
  const auto same = [&](const char* name, const std::string& what, const std::string& remedy) {
    check(field(name) == own.at(name), folder, ": is of a run with ", excerpt(dump_json(field(name))), " ", what,
          ", this run has ", dump_json(own.at(name)), "; ", remedy);
  };
  same("nodes", "nodes", "resume with as many");
  same("workers_per_node", "workers per node", "resume with as many");
  same("methods", "as optimizer and exchange", "resume with the same methods");
  same("parameters", "parameters", "resume with the same model");
  check(field("files").is_object(), path, ": \"files\" is no object");
  return saved;
}

// Throws unless the file is as the manifest says.
void check_file(const std::string& folder, const std::string& name, const json& manifest) {
  const std::string path = folder + "/" + name;
  const json& files = manifest.at("files");
  check(files.contains(name), folder, "/", kManifest, ": does not list ", name);
  const json& entry = files.at(name);
  check(entry.is_object() && entry.contains("bytes") && entry.at("bytes").is_number_integer() &&
            entry.contains("xxh3_128") && entry.at("xxh3_128").is_string(),
        folder, "/", kManifest, ": the entry of ", name, " needs \"bytes\" and \"xxh3_128\"");
  const Digest digest = digest_of(path);
  check(entry.at("bytes") == digest.bytes, path, ": has ", digest.bytes, " bytes, but the manifest says ",
        dump_json(entry.at("bytes")), "; the file is damaged, use another checkpoint");
  check(entry.at("xxh3_128") == digest.xxh3_128, path,
        ": its checksum differs from that of the manifest; the file is damaged, use another checkpoint");
}

void load_parameters(const std::string& folder, DataParallel& replica, Communicator& comm) {
  const std::string path = folder + "/" + kModel;
  const std::map<std::string, Tensor> saved = map_safetensors(path);
  replica.with_master_weights([&] {
    on_all(*comm.world, [&] {
      size_t used = 0;
      for (const Bucket& bucket : replica.buckets())
        for (const Slot& slot : bucket.slots) {
          const auto found = saved.find(slot.name);
          check(found != saved.end(), path, ": has no parameter '", slot.name, "'; resume with the same model");
          const Tensor& values = found->second;
          const Shape shape = slot.var.value().shape();
          check(values.shape() == shape && values.dtype() == bucket.param.dtype(), path, ": ", slot.name, " is ",
                values.shape(), " ", values.dtype(), ", but the model has ", shape, " ", bucket.param.dtype());
          bucket.param.range(slot.offset, slot.numel).copy_from(values.to(bucket.param.device()).view({slot.numel}));
          ++used;
        }
      check(used == saved.size(), path, ": has ", saved.size(), " parameters, but the model ", used);
    });
  });
}

}  // namespace

void save_checkpoint(const std::string& folder, DataParallel& replica, Communicator& comm,
                     const CheckpointExtras& extras) {
  Group& world = *comm.world;
  check(replica.synchronized(), "checkpoint: after step ", replica.steps(),
        " the replicas differ, because the optimizer takes local steps; save when synchronized() is true");
  const std::string partial = folder + ".partial";
  on_all(world, [&] {
    if (comm.rank != 0) return;
    std::error_code error;
    check(!fs::exists(folder, error), folder, ": exists already");
    fs::remove_all(partial, error);
    fs::create_directories(partial, error);
    check(!error, partial, ": cannot be created (", error.message(), ")");
  });
  Digest model, own;
  replica.with_master_weights([&] {
    on_all(world, [&] {
      if (comm.rank != 0) return;
      std::vector<std::pair<std::string, Tensor>> parameters;
      for (const Bucket& bucket : replica.buckets())
        for (const Slot& slot : bucket.slots)
          parameters.emplace_back(slot.name,
                                  bucket.param.range(slot.offset, slot.numel).to(kCpu).view(slot.var.value().shape()));
      std::sort(parameters.begin(), parameters.end(), [](auto& a, auto& b) { return a.first < b.first; });
      save_safetensors(partial + "/" + kModel, parameters, {{"format", "pt"}});
      model = digest_of(partial + "/" + kModel);
    });
  });
  on_all(world, [&] {
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const StateTensor& part : parts_of(replica, extras))
      if ((!part.replicated || comm.rank == 0) && part.values.numel() > 0)
        tensors.emplace_back(key_of(part), part.values.to(kCpu));
    for (const auto& [name, values] : extras.tensors) tensors.emplace_back("tensor/" + name, values.to(kCpu));
    std::map<std::string, std::string> numbers;
    for (const auto& [name, value] : extras.numbers) numbers["number/" + name] = exact(value);
    const std::vector<double> counters = replica.counters();
    for (size_t i = 0; i < counters.size(); ++i) numbers["counter/" + std::to_string(i)] = exact(counters[i]);
    const std::string path = partial + "/" + rank_file(comm.rank);
    save_safetensors(path, tensors, numbers);
    own = digest_of(path);
  });
  const auto digests = gather_texts(world, {std::to_string(own.bytes), own.xxh3_128}, "checkpoint/manifest");
  on_all(world, [&] {
    if (comm.rank != 0) return;
    json manifest = manifest_of(replica, comm);
    manifest["files"][kModel] = {{"bytes", model.bytes}, {"xxh3_128", model.xxh3_128}};
    for (size_t rank = 0; rank < digests.size(); ++rank)
      manifest["files"][rank_file(static_cast<int>(rank))] = {{"bytes", std::stoll(digests[rank][0])},
                                                              {"xxh3_128", digests[rank][1]}};
    write_synced(partial + "/" + kManifest, dump_json(manifest, 1) + "\n");
    sync_folder(partial);
    std::error_code error;
    fs::rename(partial, folder, error);
    check(!error, folder, ": cannot be renamed from ", partial, " (", error.message(), ")");
    sync_folder(fs::path(folder).parent_path().empty() ? "." : fs::path(folder).parent_path().string());
  });
}

void load_checkpoint(const std::string& folder, DataParallel& replica, Communicator& comm, CheckpointExtras& extras) {
  Group& world = *comm.world;
  std::map<std::string, std::string> numbers;
  json manifest;
  on_all(world, [&] {
    manifest = read_manifest(folder, replica, comm);
    check_file(folder, rank_file(comm.rank), manifest);
    if (comm.rank == 0) check_file(folder, kModel, manifest);
  });
  load_parameters(folder, replica, comm);
  on_all(world, [&] {
    const auto path_of = [&](int rank) { return folder + "/" + rank_file(rank); };
    const int64_t numel = replica.buckets().numel();
    std::map<int, SavedParts> of_ranks;
    const auto saved_by = [&](int rank) -> const SavedParts& {
      auto found = of_ranks.find(rank);
      if (found != of_ranks.end()) return found->second;
      if (rank != comm.rank) check_file(folder, rank_file(rank), manifest);
      return of_ranks.emplace(rank, SavedParts(map_safetensors(path_of(rank)), numel)).first->second;
    };
    // Own values first, then those of the node, then any: with other buckets, other ranks own some of the values.
    std::vector<int> order{comm.rank};
    const int workers = comm.topology.workers_per_node, first = comm.rank / workers * workers;
    for (int rank = first; rank < first + workers; ++rank) order.push_back(rank);
    for (int rank = 0; rank < world.size(); ++rank) order.push_back(rank);
    const std::vector<StateTensor> parts = parts_of(replica, extras);
    for (const StateTensor& part : parts) {
      StateTensor here = part;
      int64_t next = numel;
      for (const StateTensor& other : parts)
        if (other.name == part.name && other.begin > part.begin) next = std::min(next, other.begin);
      here.values = part.values.device().is_cuda() ? part.values.to(kCpu) : part.values;
      std::vector<bool> done(static_cast<size_t>(elements_of(here.values, part.begin, next)));
      if (is_mask(here.values)) here.values.zero();
      int64_t missing = std::ssize(done);
      for (size_t i = 0; i < order.size() && missing > 0; ++i) missing = saved_by(order[i]).fill(here, done);
      check(missing == 0, folder, ": lacks ", missing, " of ", done.size(), " values of ", part.name,
            "; it is of a run with other options");
      if (part.values.device().is_cuda()) part.values.copy_from(here.values);
    }
    const std::map<std::string, Tensor> own = map_safetensors(path_of(comm.rank), &numbers);
    for (auto& [name, values] : extras.tensors) {
      const auto found = own.find("tensor/" + name);
      check(found != own.end(), path_of(comm.rank), ": has no ", name);
      check(found->second.shape() == values.shape() && found->second.dtype() == values.dtype(), path_of(comm.rank),
            ": ", name, " is ", found->second.shape(), " ", found->second.dtype(), ", expected ", values.shape(), " ",
            values.dtype());
      values.copy_from(found->second.to(values.device()));
    }
    extras.numbers.clear();
    std::vector<double> counters;
    for (const auto& [name, text] : numbers) {
      if (name.starts_with("number/")) extras.numbers[name.substr(7)] = std::strtod(text.c_str(), nullptr);
      counters.resize(counters.size() + name.starts_with("counter/"));
    }
    for (size_t i = 0; i < counters.size(); ++i) {
      const auto found = numbers.find("counter/" + std::to_string(i));
      check(found != numbers.end(), path_of(comm.rank), ": has no counter ", i);
      counters[i] = std::strtod(found->second.c_str(), nullptr);
    }
    replica.restore(counters);
  });
  check_identical(world, static_cast<uint64_t>(replica.steps()), "the step of the checkpoint");
  check_identical(world, replica.buckets().value_hash(), "the parameters of the checkpoint");
  check_identical(world, replica.optimizer().shared_state_hash(), "the optimizer's shared state of the checkpoint");
}

std::map<int64_t, std::string> checkpoints_in(const std::string& folder) {
  std::map<int64_t, std::string> all;
  std::error_code error;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    const fs::directory_entry& entry = *at;
    const std::string name = entry.path().filename().string();
    std::error_code ignored;
    if (!name.starts_with("step-") || !fs::exists(entry.path() / kManifest, ignored)) continue;
    char* end = nullptr;
    const long long step = std::strtoll(name.c_str() + 5, &end, 10);
    if (*end == '\0' && end != name.c_str() + 5) all[step] = entry.path().string();
  }
  return all;
}

std::string newest_checkpoint(const std::string& folder) {
  const std::map<int64_t, std::string> all = checkpoints_in(folder);
  return all.empty() ? "" : all.rbegin()->second;
}

}  // namespace godwit
