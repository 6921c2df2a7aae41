// Checkpoints: the complete state of a DataParallel. Training continues from a checkpoint bit for bit.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/group.h"
#include "comm/state_tensor.h"
#include "optim/data_parallel.h"

namespace godwit {

// Data of the program that a rank adds to a checkpoint.
struct CheckpointExtras {
  std::vector<StateTensor> state = {};          // state by global parameter offset, such as averaged weights
  std::map<std::string, Tensor> tensors = {};   // tensors by name, such as the buffers of a model
  std::map<std::string, Tensor> optional = {};  // like `tensors`, but unchanged if the checkpoint lacks them
  // By name, such as running statistics; added to the model's files. Rank 0 saves them. load_checkpoint() needs tensors
  // with these names and leaves them unchanged.
  std::map<std::string, Tensor> model = {};
  std::map<std::string, Tensor> own = {};       // this rank's tensors by name; loaded only for an equal topology
  std::map<std::string, double> numbers = {};   // numbers by name, such as the position in the data
  std::vector<std::string> unused = {};         // set by load_checkpoint(): unused saved state; complete on rank 0
  // Writes further files of the checkpoint, such as a HuggingFace config.json, to a new folder. Called on rank 0, by
  // another thread, before the checkpoint is complete. The files must not have the names of the checkpoint's own files.
  // Empty: no further files.
  std::function<void(const std::string& folder)> describe = {};
  int64_t model_file_bytes = 64 << 20;          // ranks divide a larger model into files of about this size
};

// Thrown on all ranks if a checkpoint cannot be saved or loaded. Other errors are communication failures.
class CheckpointFailed : public Error {
 public:
  explicit CheckpointFailed(const std::string& text) : Error(text, __FILE__, __LINE__) {}  // text: the message
};

// Collective, between steps. Writes a folder with the files
//   model.safetensors      the parameters by name, in the order of weight files (FileLayout); the float32 master
//                          weights if ranks compute with rounded weights. A large model has files
//                          model-00001-of-0000N.safetensors and an index, as HuggingFace writes them
//   rank-00000.safetensors …  for each rank: state of its optimizer and exchange, counters and extras
//   manifest.json          version, topology, optimizer, exchange, and the size and XXH3-128 checksum of each file
// The folder has a temporary name until it is complete, so an interrupted call leaves no folder with its final name.
// All ranks must use one file system. Throws if the replicas differ (0/1 Adam's local steps). Throws CheckpointFailed
// if a file cannot be written or the folder exists.
void save_checkpoint(const std::string& folder, DataParallel& replica, Communicator& comm,
                     const CheckpointExtras& extras = {});

// A checkpoint that is written in the background from copies of the values. Ranks need memory for the copies until the
// files are complete. If a rank ends earlier, there is no complete checkpoint, and the folder keeps its temporary name.
class PendingCheckpoint {
 public:
  ~PendingCheckpoint();  // waits for this rank's files
  // On rank 0: whether the checkpoint can be used. On other ranks: whether this rank's files are written. Does not
  // block.
  bool complete() const;
  int64_t bytes() const;   // size of all files; on rank 0, after complete()
  double seconds() const;  // time from the copies to complete(); on rank 0, after complete()
  // Collective: waits until the checkpoint is complete. Throws CheckpointFailed on all ranks if it cannot be written.
  void finish(Group& world);

 private:
  friend std::unique_ptr<PendingCheckpoint> begin_checkpoint(const std::string&, DataParallel&, Communicator&,
                                                             const CheckpointExtras&);
  class Writer;
  explicit PendingCheckpoint(std::unique_ptr<Writer> writer);
  std::unique_ptr<Writer> writer_;
};

// Collective, between steps: starts save_checkpoint() and returns when the values have been copied.
std::unique_ptr<PendingCheckpoint> begin_checkpoint(const std::string& folder, DataParallel& replica,
                                                    Communicator& comm, const CheckpointExtras& extras = {});

// Allocates memory for the copies of begin_checkpoint() and releases it to the pool. A background thread touches the
// pages, so that the first checkpoint does not wait for new pages. If this thread cannot be started, returns no thread.
// Must be called between steps.
std::jthread reserve_checkpoint_memory(const DataParallel& replica, const Communicator& comm,
                                       const CheckpointExtras& extras);

// Collective, between steps. Restores a checkpoint of a run with the same model and methods. Fills the tensors of the
// extras, which must have the saved sizes, and replaces the numbers of the extras. Verifies a whole file before using
// it. Throws a CheckpointFailed that names the file and the difference; the replica is then unusable.
//
// Buckets and threads may differ, except that some methods need the saved bucket sizes with sharding hybrid.
//
// The topology may also differ. State with one owner then goes to the new owner. State that differs between ranks, such
// as error feedback, keeps its mean over the ranks: the saved ranks are divided into as many equal parts as there are
// new ranks, and new rank j gets the mean of part j. A rank on the border of two parts counts in both by its fractions.
// 8-bit codes are rounded to nearest.
//
// Returns one line that names the redistributed state, and the state that the saved run does not have. Returns "" for
// the same topology.
std::string load_checkpoint(const std::string& folder, DataParallel& replica, Communicator& comm,
                            CheckpointExtras& extras);

// N of a checkpoint's name "step-N"; nullopt for other names.
std::optional<int64_t> checkpoint_step(std::string_view name);
// The newest complete checkpoint step-N in a folder, or "" if there is none. Throws like checkpoints_in().
std::string newest_checkpoint(const std::string& folder);
// Complete checkpoints step-N in a folder by N, in ascending order. complete = false: the folders step-N without a
// manifest. None if the folder does not exist. Throws CheckpointFailed if the folder exists but cannot be read, or is a
// symbolic link to a folder that does not exist.
std::map<int64_t, std::string> checkpoints_in(const std::string& folder, bool complete = true);

}  // namespace godwit
