// LSTM language models of Zaremba et al. 2014 and of Merity et al. 2017, without Merity's activation regularizers.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "nn/lstm.h"

namespace godwit {

// Sizes, dropout and initialization of an LSTM language model. Dropouts are probabilities.
struct LstmConfig {
  int64_t vocab_size = 10000;             // number of tokens
  int64_t embedding = 650, hidden = 650;  // widths of the embedding and of the LSTM layers
  int64_t layers = 2;                     // number of LSTM layers
  // The output layer shares the weight of the embedding. The last layer then has the embedding's width.
  bool tied = false;
  double input_dropout = 0.5;     // dropout of the embeddings
  double hidden_dropout = 0.5;    // dropout between the layers
  double output_dropout = 0.5;    // dropout of the last layer's output
  double weight_dropout = 0;      // dropout of the recurrent weights
  double init_range = 0.05;       // embeddings and output weights are uniform in ± this; the output's bias is 0
  double recurrent_range = 0.05;  // LSTM weights and biases are uniform in ± this; 0: 1/√width, as in torch.nn.LSTM
  DType dtype = DType::f32;       // or f64; bf16: activations of the layers; the rest is float32
  uint64_t seed = 1;              // seed of the initial parameters
};

std::vector<std::string> lstm_names();            // lstm_small, lstm_medium, lstm_large (Zaremba), lstm_awd (Merity)
LstmConfig lstm_config(const std::string& name);  // throws for an unknown name; suggests the nearest

// Embedding, dropout, LSTM layers, dropout, output layer. Parameters: encoder.weight, rnn.weight_ih_l0, …,
// decoder.weight unless tied, decoder.bias.
class LstmLanguageModel : public nn::Module {
 public:
  using State = nn::Lstm::State;  // states of all layers
  // Result of a pass.
  struct Output {
    Var logits;   // [time·batch, vocab_size] of the parameters' type
    State state;  // state after the last step
  };

  explicit LstmLanguageModel(const LstmConfig& config);  // weights are zero; throws for invalid settings
  ~LstmLanguageModel() override;

  // ids: int32 [time, batch] on the CPU, in [0, vocab_size). `dropout`: null: no dropout.
  Output forward(const Tensor& ids, const State& initial, const DropoutContext* dropout = nullptr) const;
  State zero_state(int64_t batch) const { return rnn_.zero_state(batch); }  // state before the first token
  const LstmConfig& config() const { return config_; }                      // sizes and settings

 private:
  struct Encoder;
  struct Decoder;

  LstmConfig config_;
  std::unique_ptr<Encoder> encoder_;
  nn::Lstm rnn_;
  std::unique_ptr<Decoder> decoder_;
};

std::unique_ptr<LstmLanguageModel> make_lstm(const LstmConfig& config);  // with initial weights

// Copies the values of `state` to `to`, whose tensors keep their addresses. Gradients do not flow through the copy.
void carry_state(const LstmLanguageModel::State& state, const LstmLanguageModel::State& to);

}  // namespace godwit
