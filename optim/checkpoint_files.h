// The files of a checkpoint: names, checksums and the manifest. Only the sources of optim/checkpoint.h include this
// header.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/state_tensor.h"
#include "optim/checkpoint.h"

namespace godwit::checkpoint {

inline constexpr const char* kManifest = "manifest.json";              // sizes and checksums of the other files
inline constexpr const char* kIndex = "model.safetensors.index.json";  // for models in several files, as in HuggingFace

std::string rank_file(int rank);           // "rank-00003.safetensors"
std::string model_file(int i, int files);  // i from 0: "model.safetensors" or "model-00001-of-00003.safetensors"
// Name of a state tensor in the files of ranks: "optimizer/m@4096"; for a mask of 630 elements,
// "optimizer/active@4096+630".
std::string key_of(const StateTensor& part);

// Size and checksum of a file.
struct Digest {
  std::string name;           // name within the checkpoint
  int64_t bytes = 0;          // size in bytes
  std::string xxh3_128 = {};  // 32 hexadecimal digits
};
Digest digest_of(const std::string& folder, const std::string& name);  // throws if the file cannot be read

// Computes the size and checksum of data that is added in blocks.
class Digester {
 public:
  Digester();
  ~Digester();
  Digester(const Digester&) = delete;
  void add(const void* data, uint64_t bytes);    // adds the next block
  Digest digest(const std::string& name) const;  // digest of all bytes added

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The hexadecimal text of a number, such as "0x1.8p+1", in any locale.
std::string exact_text(double value);
// The number of a hexadecimal or decimal text. `path`: the file, for the Error about another text.
double exact_number(const std::string& text, const std::string& path);

// Writes a text and syncs it to disk. Throws an Error with path and reason on failure.
void write_synced(const std::string& path, const std::string& text);
void sync(const std::string& path);  // syncs a file, or the entries of a folder, to disk; throws like write_synced()

// The JSON object of a manifest, without the files.
std::string manifest_of(const DataParallel& replica, const Communicator& comm);
// A manifest with a supported version and for the same model and methods.
struct Manifest {
  bool file_layout = true;                            // whether parameters are in the order of weight files
  Topology topology;                                  // topology of the saved run
  std::vector<Digest> files;                          // sorted by name
  const Digest* find(const std::string& name) const;  // null if the file is not listed
};
// Throws an Error with the reason if the checkpoint cannot be used.
Manifest read_manifest(const std::string& folder, const DataParallel& replica, const Communicator& comm);
// Like read_manifest(), from the text of the file `path`. own: manifest_of() of this run.
Manifest parse_manifest(const std::string& text, const std::string& path, const std::string& own);
// Throws unless the manifest lists the file with its size and checksum.
void check_file(const std::string& folder, const std::string& name, const Manifest& manifest);

// State tensors of the replica and of the program, with the names under which they are saved.
std::vector<StateTensor> parts_of(const DataParallel& replica, const CheckpointExtras& extras);

// Collective: calls f. If f throws on some rank, throws CheckpointFailed on every rank.
void on_all(Group& world, const std::function<void()>& f);

}  // namespace godwit::checkpoint
