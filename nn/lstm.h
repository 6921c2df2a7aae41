// Lstm: LSTM layers, each over the output of the previous layer.
#pragma once
#include <vector>

#include "autograd/ops/lstm.h"
#include "nn/dropout.h"
#include "nn/module.h"

namespace godwit::nn {

// Dropout within an Lstm. Site first_site + k is the output of layer k, site first_site + layers + k its recurrent
// weights.
struct LstmDropout {
  double between = 0;                   // fraction of the outputs of all layers but the last
  double weights = 0;                   // fraction of the recurrent weights (Merity et al. 2017: DropConnect)
  const DropoutContext* run = nullptr;  // null: nothing is dropped
  int64_t first_site = 0;               // number of the first dropout site in the model
};

// x [time, batch, input] -> [time, batch, width of the last layer]. Parameters as in torch.nn.LSTM: weight_ih_l0,
// weight_hh_l0, bias_ih_l0, bias_hh_l0 (no weight decay of biases), weight_ih_l1, …; initially zero.
class Lstm : public Module {
 public:
  using State = std::vector<ops::LstmState>;  // of each layer
  // Result of a pass.
  struct Output {
    Var y;        // output of the last layer
    State state;  // after the last step
  };

  // One layer for each width. `dtype`: type of x. Throws unless there is a layer and all widths are positive.
  Lstm(int64_t input, const std::vector<int64_t>& widths, DType dtype = DType::f32);

  Output operator()(const Var& x, const State& initial, const LstmDropout& dropout = {}) const;  // runs all layers
  State zero_state(int64_t batch) const;  // leaves without gradients

 private:
  std::vector<ops::LstmWeights> layers_;
  DType dtype_;
};

}  // namespace godwit::nn
