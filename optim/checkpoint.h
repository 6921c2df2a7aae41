// Checkpoints: everything that a DataParallel needs to continue with the same bits.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "comm/group.h"
#include "comm/state_tensor.h"
#include "optim/data_parallel.h"

namespace godwit {

// What a program adds to the checkpoint of a rank.
struct CheckpointExtras {
  std::vector<StateTensor> state = {};         // by global parameter offset, as averaged weights
  std::map<std::string, Tensor> tensors = {};  // by name, as the buffers of a model
  std::map<std::string, double> numbers = {};  // by name, as the position in the data
};

// A checkpoint that could not be saved or loaded, on all ranks. Other errors are failures of communication.
class CheckpointFailed : public Error {
 public:
  explicit CheckpointFailed(const std::string& text) : Error(text, __FILE__, __LINE__) {}  // with a message
};

// Collective. Writes a folder with the files
//   model.safetensors      the parameters by name, float32 master weights if ranks compute with rounded ones
//   rank-00000.safetensors …  for each rank: state of its optimizer and exchange, counters and extras
//   manifest.json          version, topology, optimizer, exchange, and the size and XXH3-128 checksum of each file
// The folder has a temporary name until it is complete, so an interrupted call leaves no checkpoint of that name. All
// ranks must reach one file system. Throws if the replicas differ (0/1 Adam's local steps), and CheckpointFailed if a
// file cannot be written or the folder exists.
void save_checkpoint(const std::string& folder, DataParallel& replica, Communicator& comm,
                     const CheckpointExtras& extras = {});

// Collective. Restores a checkpoint of a run with the same model, methods and topology; buckets and threads may differ.
// Fills the extras, whose tensors have the sizes of those saved, and replaces their numbers. Checks all of a file
// before it uses it. Throws CheckpointFailed that names the file and what differs; the replica is then unusable.
void load_checkpoint(const std::string& folder, DataParallel& replica, Communicator& comm, CheckpointExtras& extras);

// The newest complete checkpoint step-N in a folder; "" if there is none.
std::string newest_checkpoint(const std::string& folder);
// Complete checkpoints step-N in a folder by N, ascending.
std::map<int64_t, std::string> checkpoints_in(const std::string& folder);

}  // namespace godwit
