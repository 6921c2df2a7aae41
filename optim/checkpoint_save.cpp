#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <thread>

#include "comm/gather.h"
#include "engine/clock.h"
#include "engine/context.h"
#include "engine/json-inl.h"
#include "engine/json_text.h"
#include "engine/safetensors.h"
#include "engine/start_thread.h"
#include "optim/checkpoint_files.h"

namespace godwit {

using namespace checkpoint;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// A copy in CPU memory that training does not change.
Tensor copy_of(const Tensor& values) { return values.device() == kCpu ? values.clone() : values.to(kCpu); }

struct File {
  std::string name;
  std::vector<std::pair<std::string, Tensor>> tensors;
  std::map<std::string, std::string> metadata;
  std::vector<FileLayout> layouts = {};  // layouts of the tensors; empty: all as in memory
};

// One file of the model: some parameters, in order of names.
struct ModelFile {
  std::string name;
  std::vector<std::pair<const Bucket*, const Slot*>> parameters;
};

// Divides the parameters into files of at most max_bytes each, or of one parameter.
std::vector<ModelFile> model_files(const Buckets& buckets, int64_t max_bytes) {
  std::vector<std::pair<const Bucket*, const Slot*>> all;
  for (const Bucket& bucket : buckets)
    for (const Slot& slot : bucket.slots) all.emplace_back(&bucket, &slot);
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second->name < b.second->name; });
  std::vector<ModelFile> files;
  int64_t bytes = 0;
  for (const auto& [bucket, slot] : all) {
    const int64_t own = slot->numel * size_of(bucket->param.dtype());
    if (files.empty() || bytes + own > max_bytes) files.emplace_back(), bytes = 0;
    files.back().parameters.emplace_back(bucket, slot);
    bytes += own;
  }
  for (size_t i = 0; i < files.size(); ++i)
    files[i].name = model_file(static_cast<int>(i), static_cast<int>(files.size()));
  return files;
}

// `more`: further tensors of the first file.
std::string index_of(const std::vector<ModelFile>& files, const std::map<std::string, Tensor>& more) {
  std::map<std::string, std::string> file_of;
  int64_t bytes = 0;
  for (const auto& [name, values] : more) file_of[name] = files.front().name, bytes += values.bytes();
  for (const ModelFile& file : files)
    for (const auto& [bucket, slot] : file.parameters) {
      file_of[slot->name] = file.name;
      bytes += slot->numel * size_of(bucket->param.dtype());
    }
  return safetensors_index(file_of, bytes);
}

// Whether a checkpoint uses this name for one of its own files.
bool is_own_file(const std::string& name) {
  return name == kManifest || name == kIndex || name.starts_with("rank-") ||
         (name.starts_with("model") && name.ends_with(".safetensors"));
}

// "rank-00003.safetensors.written": the rank's files are complete. It lists their sizes and checksums.
std::string written_file(const std::string& folder, int rank) { return folder + "/" + rank_file(rank) + ".written"; }

}  // namespace

// Writes the files of a rank. Rank 0 then waits for the files of the other ranks and writes the manifest.
class PendingCheckpoint::Writer {
 public:
  Writer(std::string folder, int rank, int world, std::string manifest, std::vector<File> files, std::string index,
         std::function<void(const std::string&)> describe)
      : folder_(std::move(folder)),
        rank_(rank),
        world_(world),
        manifest_(std::move(manifest)),
        files_(std::move(files)),
        index_(std::move(index)),
        describe_(std::move(describe)),
        context_(context()),
        thread_(start_thread([this] { run(); }, "the thread that writes a checkpoint")) {}
  ~Writer() {
    abandoned_ = true;
    thread_.join();
  }

  const std::string& folder() const { return folder_; }
  int rank() const { return rank_; }
  bool own_written() const { return own_written_; }
  bool ended() const { return ended_; }
  void abandon() { abandoned_ = true; }
  const std::string& problem() const { return problem_; }  // after ended(), or after own_written() on other ranks
  int64_t bytes() const { return bytes_; }
  double seconds() const { return seconds_; }

 private:
  void run() {
    const ContextGuard guard(context_);
    try {
      write_files();
      own_written_ = true;
      if (rank_ == 0 && all_written()) write_manifest();
      else if (rank_ == 0) problem_ = "another rank has not written its files";
    } catch (const std::exception& error) {
      give_up(error.what());
    } catch (...) {  // CheckpointExtras::describe may throw anything
      give_up("");
    }
    own_written_ = true;
    seconds_ = seconds_since(begun_);
    ended_ = true;
  }

  void give_up(const std::string& problem) {
    problem_ = problem.empty() ? "unknown error" : problem;
    std::error_code ignored;  // removes the files, because the disk may be full
    for (const File& file : files_) fs::remove(partial() + "/" + file.name, ignored);
  }

  std::string partial() const { return folder_ + ".partial"; }

  void write_files() {
    std::string list;
    const auto written = [&](const Digest& digest) {
      list += detail::concat(digest.bytes, " ", digest.xxh3_128, " ", digest.name, "\n");  // names may have spaces
    };
    for (File& file : files_) {
      for (size_t i = 0; i < file.layouts.size(); ++i)
        file.tensors[i].second = to_file_layout(file.tensors[i].second, file.layouts[i]);
      Digester digester;
      save_safetensors(partial() + "/" + file.name, file.tensors, file.metadata,
                       [&](const void* data, uint64_t bytes) { digester.add(data, bytes); });
      file.tensors.clear();  // frees the copies
      written(digester.digest(file.name));
    }
    if (!index_.empty()) {
      write_synced(partial() + "/" + kIndex, index_);
      written(digest_of(partial(), kIndex));
    }
    if (describe_) {
      const std::string folder = partial() + "/description";
      fs::create_directory(folder);
      describe_(folder);
      for (const fs::directory_entry& file : fs::directory_iterator(folder)) {
        const std::string name = file.path().filename().string();
        check(file.is_regular_file(), "checkpoint: the description has ", name, ", which is not a regular file");
        check(!is_own_file(name), "checkpoint: the description has ", name, ", the name of a file of the checkpoint; ",
              "choose another name");
        sync(file.path().string());
        fs::rename(file.path(), partial() + "/" + name);
        written(digest_of(partial(), name));
      }
      fs::remove(folder);
    }
    const std::string path = written_file(partial(), rank_);
    write_synced(path + ".new", list);
    std::error_code error;
    fs::rename(path + ".new", path, error);
    check(!error, path, ": cannot be written (", error.message(), ")");
  }

  // Waits for the files of all ranks; false after abandon().
  bool all_written() const {
    for (int rank = 0; rank < world_; ++rank) {
      std::error_code error;
      while (!fs::exists(written_file(partial(), rank), error)) {
        if (abandoned_) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    }
    return true;
  }

  void write_manifest() {
    json manifest = parse_json(manifest_);
    for (int rank = 0; rank < world_; ++rank) {
      const std::string path = written_file(partial(), rank);
      std::ifstream in(path);
      Digest file;
      while (in >> file.bytes >> file.xxh3_128 && in.get() && std::getline(in, file.name)) {
        manifest["files"][file.name] = {{"bytes", file.bytes}, {"xxh3_128", file.xxh3_128}};
        bytes_ += file.bytes;
      }
      check(in.eof(), path, ": cannot be read");
    }
    for (int rank = 0; rank < world_; ++rank) fs::remove(written_file(partial(), rank));
    write_synced(partial() + "/" + kManifest, dump_json(manifest, 1) + "\n");
    sync(partial());
    std::error_code error;
    fs::rename(partial(), folder_, error);
    check(!error, folder_, ": cannot be renamed from ", partial(), " (", error.message(), ")");
    const fs::path parent = fs::path(folder_).parent_path();
    sync(parent.empty() ? "." : parent.string());
  }

  std::string folder_;
  int rank_, world_;
  std::string manifest_;  // without the files
  std::vector<File> files_;
  std::string index_;  // empty: the model has one file, or another rank writes the index
  std::function<void(const std::string& folder)> describe_;  // may be empty
  Context context_;
  std::chrono::steady_clock::time_point begun_ = Clock::now();
  std::string problem_;
  int64_t bytes_ = 0;
  double seconds_ = 0;
  std::atomic<bool> own_written_{false}, ended_{false}, abandoned_{false};
  std::thread thread_;  // last member
};

PendingCheckpoint::PendingCheckpoint(std::unique_ptr<Writer> writer) : writer_(std::move(writer)) {}
PendingCheckpoint::~PendingCheckpoint() = default;
bool PendingCheckpoint::complete() const { return writer_->ended() && writer_->problem().empty(); }
int64_t PendingCheckpoint::bytes() const { return writer_->bytes(); }
double PendingCheckpoint::seconds() const { return writer_->seconds(); }

void PendingCheckpoint::finish(Group& world) {
  const auto wait = [&](const auto& done) {
    const auto busy = world.control()->busy();
    while (!done()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      world.check_failure("checkpoint/finish");
    }
  };
  // Rank 0 may wait for files that another rank cannot write, so first all ranks report on their own files.
  wait([&] { return writer_->own_written(); });
  try {
    on_all(world, [&] {
      if (writer_->rank() != 0 || writer_->ended()) check(writer_->problem().empty(), writer_->problem());
    });
  } catch (...) {
    writer_->abandon();
    throw;
  }
  wait([&] { return writer_->ended(); });
  on_all(world, [&] { check(writer_->problem().empty(), writer_->problem()); });
}

namespace {

// Whether this rank saves a replicated state tensor: rank 0 does, and with zero3 every rank. With hybrid sharding, the
// ranks of a node have different state, so all ranks of node 0 save it. Every rank saves the state of its exchange,
// because exchanges may number blocks from 0 within a shard.
bool is_saver(const StateTensor& part, const DataParallel& replica, const Communicator& comm) {
  if (replica.sharding() != Sharding::hybrid) return comm.rank == 0 || replica.sharding() == Sharding::zero3;
  return comm.node() == 0 || part.name.starts_with("exchange/");
}

// The model's files that this rank writes, without values.
std::vector<File> own_model_files(const std::vector<ModelFile>& of_model, const Communicator& comm) {
  std::vector<File> files;
  for (size_t i = 0; i < of_model.size(); ++i) {
    if (static_cast<int>(i) % comm.world->size() != comm.rank) continue;
    files.push_back({of_model[i].name, {}, {{"format", "pt"}}});
    for (const auto& [bucket, slot] : of_model[i].parameters) {
      files.back().tensors.emplace_back(slot->name, Tensor());
      files.back().layouts.push_back(slot->layout);
    }
  }
  return files;
}

void copy_parameters(DataParallel& replica, std::vector<File>& files) {
  std::map<std::string, Tensor*> tensors;
  for (File& file : files)
    for (auto& [name, values] : file.tensors) tensors[name] = &values;
  replica.for_each_master_bucket([&](const Bucket& bucket) {
    for (const Slot& slot : bucket.slots)
      if (const auto found = tensors.find(slot.name); found != tensors.end())
        *found->second = copy_of(bucket.param.range(slot.offset, slot.numel)).view(slot.var.shape());
  });
}

// The file with this rank's state. The tensors share the memory of the replica and the extras.
File state_file(const DataParallel& replica, const Communicator& comm, const CheckpointExtras& extras) {
  File own{rank_file(comm.rank), {}, {}};
  for (const StateTensor& part : parts_of(replica, extras))
    if (!part.replicated || is_saver(part, replica, comm)) own.tensors.emplace_back(key_of(part), part.values);
  for (const auto* tensors : {&extras.tensors, &extras.optional, &extras.own})
    for (const auto& [name, values] : *tensors) own.tensors.emplace_back("tensor/" + name, values);
  for (const auto& [name, value] : extras.numbers) own.metadata["number/" + name] = exact_text(value);
  const std::vector<double> counters = replica.counters();
  for (size_t i = 0; i < counters.size(); ++i) own.metadata["counter/" + std::to_string(i)] = exact_text(counters[i]);
  return own;
}

// Throws on all ranks if the disk has no room for the files of all ranks.
void check_room(const std::string& folder, const std::vector<File>& files, Communicator& comm) {
  constexpr int64_t kMiB = 1 << 20;
  int64_t own = kMiB / 8;  // headers
  for (const File& file : files)
    for (const auto& [name, values] : file.tensors) own += values.bytes();
  const auto all = gather_texts(*comm.world, {std::to_string(own)}, "checkpoint/room");
  on_all(*comm.world, [&] {
    if (comm.rank != 0) return;
    int64_t needed = kMiB;  // for the other files of the run
    for (const auto& of_rank : all) needed += std::stoll(of_rank.front());
    std::error_code error;
    const auto room = static_cast<int64_t>(fs::space(folder, error).available);
    if (error || room >= needed) return;
    fs::remove_all(folder, error);
    fail(folder, ": needs ", needed / kMiB + 1, " MiB, but the disk has ", room / kMiB, " MiB left");
  });
}

}  // namespace

std::unique_ptr<PendingCheckpoint> begin_checkpoint(const std::string& path, DataParallel& replica, Communicator& comm,
                                                    const CheckpointExtras& extras) {
  const std::string folder = path.substr(0, path.find_last_not_of('/') + 1);
  check(!folder.empty(), "checkpoint: the path is '", path, "', expected a new folder");
  Group& world = *comm.world;
  replica.check_between_steps("checkpoint");
  replica.finish_checks();
  check(replica.synchronized(), "checkpoint: after step ", replica.steps(),
        " the replicas differ, because the optimizer takes local steps; save when synchronized() is true");
  const std::string partial = folder + ".partial";
  on_all(world, [&] {
    if (comm.rank != 0) return;
    std::error_code error;
    check(!fs::exists(folder, error), folder, ": exists already; choose another folder");
    fs::remove_all(partial, error);
    fs::create_directories(partial, error);
    check(!error, partial, ": cannot be created (", error.message(), ")");
  });
  const std::vector<ModelFile> of_model = model_files(replica.buckets(), extras.model_file_bytes);
  std::vector<File> files = own_model_files(of_model, comm);
  copy_parameters(replica, files);
  if (comm.rank == 0)
    for (const auto& [name, values] : extras.model) {
      files.front().tensors.emplace_back(name, copy_of(values));
      files.front().layouts.push_back(FileLayout::as_in_memory);
    }
  files.push_back(state_file(replica, comm, extras));
  for (auto& [name, values] : files.back().tensors) {
    check(values.defined(), "checkpoint: ", name, " is an undefined tensor");
    values = copy_of(values);
  }
  check_room(partial, files, comm);
  const std::string index = comm.rank == 0 && of_model.size() > 1 ? index_of(of_model, extras.model) : "";
  std::unique_ptr<PendingCheckpoint::Writer> writer;
  on_all(world, [&] {
    writer = std::make_unique<PendingCheckpoint::Writer>(folder, comm.rank, world.size(), manifest_of(replica, comm),
                                                         std::move(files), index,
                                                         comm.rank == 0 ? extras.describe : nullptr);
  });
  return std::unique_ptr<PendingCheckpoint>(new PendingCheckpoint(std::move(writer)));
}

std::jthread reserve_checkpoint_memory(const DataParallel& replica, const Communicator& comm,
                                       const CheckpointExtras& extras) {
  int64_t bytes = 0;
  const std::vector<ModelFile> of_model = model_files(replica.buckets(), extras.model_file_bytes);
  for (size_t i = 0; i < of_model.size(); ++i)
    for (const auto& [bucket, slot] : of_model[i].parameters)
      if (static_cast<int>(i) % comm.world->size() == comm.rank) bytes += slot->numel * size_of(bucket->param.dtype());
  if (comm.rank == 0)
    for (const auto& [name, values] : extras.model) bytes += values.bytes();
  for (const auto& [name, values] : state_file(replica, comm, extras).tensors) bytes += values.bytes();
  const Tensor memory({bytes}, DType::u8, kCpu);
  try {
    return std::jthread([memory] {
      constexpr int64_t kPage = 4096;
      for (int64_t i = 0; i < memory.bytes(); i += kPage) memory.data<uint8_t>()[i] = 0;
    });
  } catch (const std::system_error&) {  // the system allows no further thread
    return {};
  }
}

void save_checkpoint(const std::string& folder, DataParallel& replica, Communicator& comm,
                     const CheckpointExtras& extras) {
  begin_checkpoint(folder, replica, comm, extras)->finish(*comm.world);
}

}  // namespace godwit
