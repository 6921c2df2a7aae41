// State tensors of a saved run, prepared for the ranks of another run. Only the sources of optim/checkpoint.h include
// this header.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/group.h"
#include "comm/state_tensor.h"
#include "optim/checkpoint_files.h"

namespace godwit::checkpoint {

// The state that one rank saved.
class SavedState {
 public:
  // tensors: by key_of(); tensors with other names are ignored. numel: length of the parameter vector.
  SavedState(const std::map<std::string, Tensor>& tensors, int64_t numel);

  // State of the elements [begin, end) of the parameter vector.
  struct Piece {
    int64_t begin, end;  // global offsets
    Tensor values;       // values as in StateTensor
  };
  const std::vector<Piece>& named(const std::string& name) const;                   // ascending; empty if none
  const std::map<std::string, std::vector<Piece>>& all() const { return pieces_; }  // all pieces by name

 private:
  std::map<std::string, std::vector<Piece>> pieces_;
};

// Copies the saved values to each part from the first rank in `order` that has them. Calls saved_by(rank) only if
// earlier ranks lack values. Throws if no rank has a value.
void copy_state(const std::vector<StateTensor>& parts, const std::vector<int>& order,
                const std::function<const SavedState&(int rank)>& saved_by);

// Collective. Sets the parts of all ranks of `world` from the parts of the saved ranks; see load_checkpoint(). Returns
// one line, equal on all ranks, that names the averaged, moved, new and unused state.
std::string redistribute(const std::vector<StateTensor>& parts, const std::vector<SavedState>& saved, Group& world);

// Weights of the saved ranks 0 … saved−1 in the mean over the part [j/ranks, (j+1)/ranks) of the saved ranks. The sum
// of the weights is 1.
std::vector<double> weights_of(int saved, int ranks, int j);

}  // namespace godwit::checkpoint
