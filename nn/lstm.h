// Lstm: LSTM layers. Each layer takes the output of the previous layer as input.
#pragma once
#include <vector>

#include "autograd/ops/lstm.h"
#include "nn/dropout.h"
#include "nn/module.h"

namespace godwit::nn {

// Dropout within an Lstm. Site first_site + k is the output of layer k. Site first_site + layers + k is its recurrent
// weights.
struct LstmDropout {
  double between = 0;                   // dropout probability for the outputs of all layers except the last
  double weights = 0;                   // dropout probability for recurrent weights (Merity et al. 2017: DropConnect)
  const DropoutContext* context = nullptr;  // null: no dropout
  int64_t first_site = 0;               // index of the first dropout site in the model
};

// x [time, batch, input] -> [time, batch, width of the last layer]. Parameters as in torch.nn.LSTM: weight_ih_l0,
// weight_hh_l0, bias_ih_l0, bias_hh_l0, weight_ih_l1, …, initially zero. Biases have no weight decay.
class Lstm : public Module {
 public:
  using State = std::vector<ops::LstmState>;  // state of each layer
  // Result of a pass.
  struct Output {
    Var y;        // output of the last layer
    State state;  // state after the last step
  };

  // `widths`: the width of each layer. `dtype`: type of x. Throws unless there is a layer and all widths are positive.
  Lstm(int64_t input, const std::vector<int64_t>& widths, DType dtype = DType::f32);

  Output operator()(const Var& x, const State& initial, const LstmDropout& dropout = {}) const;  // runs all layers
  State zero_state(int64_t batch) const;  // leaves without gradients

 private:
  std::vector<ops::LstmWeights> layers_;
  DType dtype_;
};

}  // namespace godwit::nn
