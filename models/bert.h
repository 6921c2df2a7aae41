// BERT (Devlin et al. 2018) and its heads. Names, shapes and order of parameters are those of HuggingFace transformers.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/bert_config.h"
#include "models/dropout.h"
#include "nn/layers.h"

namespace godwit {

// The token ids of a batch.
struct TextInput {
  Tensor ids;             // int32 [batch, length], in [0, vocab_size)
  Tensor token_type_ids;  // token types, int32 [batch, length], in [0, type_vocab_size); undefined: all 0
  Tensor mask;            // uint8 [batch, length], 1 = token, 0 = padding; undefined: no padding
};

// Base class of the networks that pretrained.h loads and saves. Weights are zero until make_bert() or a file sets them.
class BertModule : public nn::Module {
 public:
  const BertConfig& config() const { return config_; }               // sizes and settings
  const std::string& architecture() const { return architecture_; }  // HuggingFace's class name

 protected:
  BertModule(const BertConfig& config, std::string architecture);  // throws for invalid settings

 private:
  const BertConfig config_;
  const std::string architecture_;
};

// Embeddings and encoder, optionally with a pooler for the first token.
class Bert : public BertModule {
 public:
  explicit Bert(const BertConfig& config, bool pooler = true);  // `pooler`: whether pool() may be called
  ~Bert() override;

  // Returns hidden states [batch·length, hidden_size] of type config.dtype. Throws if ids, token_type_ids or mask are
  // malformed or out of range, or if length exceeds max_position_embeddings.
  Var forward(const TextInput& input, const DropoutContext* dropout = nullptr) const;
  // tanh of a linear layer on the hidden state of the first token: [batch, hidden_size] of the parameters' type.
  Var pool(const Var& hidden, const TextInput& input) const;
  const Var& word_embeddings() const;  // [vocab_size, hidden_size]

 private:
  class Embeddings;
  class Layer;

  std::unique_ptr<Embeddings> embeddings_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::unique_ptr<nn::Linear> pooler_;
};

// Base class of the heads. Contains the Bert, named "bert".
class BertHead : public BertModule {
 public:
  const Bert& bert() const { return bert_; }  // embeddings and encoder

 protected:
  // `architecture`: HuggingFace's class name.
  BertHead(const BertConfig& config, std::string architecture, bool pooler);

  Bert bert_;  // embeddings and encoder
};

// Vocabulary logits at selected positions. The decoder shares word_embeddings as its weight.
class BertLMHead : public nn::Module {
 public:
  BertLMHead(const BertConfig& config, const Bert& bert);  // shares word_embeddings() of `bert`
  // positions: int32 [masked], row indices of hidden [batch·length, hidden_size]. Returns [masked, vocab_size] of the
  // parameters' type.
  Var operator()(const Var& hidden, const Tensor& positions) const;

 private:
  Var bias_;
  nn::Linear dense_;
  nn::LayerNorm norm_;
  std::string activation_;
  Var words_;
};

// Heads for masked words and next-sentence prediction.
class BertForPreTraining : public BertHead {
 public:
  struct Output {  // logits
    Var prediction_logits;     // [masked, vocab_size]
    Var next_sentence_logits;  // [batch, 2]; class 0: B follows A
  };
  explicit BertForPreTraining(const BertConfig& config);  // weights are zero
  // masked_positions: as for BertLMHead.
  Output forward(const TextInput& input, const Tensor& masked_positions, const DropoutContext* dropout = nullptr) const;

 private:
  BertLMHead words_;
  nn::Linear next_sentence_;
};

// Head for masked words.
class BertForMaskedLM : public BertHead {
 public:
  explicit BertForMaskedLM(const BertConfig& config);  // weights are zero
  // Logits [masked, vocab_size] at masked_positions, as for BertLMHead.
  Var forward(const TextInput& input, const Tensor& masked_positions, const DropoutContext* dropout = nullptr) const;

 private:
  BertLMHead words_;
};

// Head for the start and the end of an answer.
class BertForQuestionAnswering : public BertHead {
 public:
  explicit BertForQuestionAnswering(const BertConfig& config);                     // weights are zero
  Var forward(const TextInput& input, const DropoutContext* dropout = nullptr) const;  // [batch·length, 2]: start, end

 private:
  nn::Linear outputs_;
};

// Head for the class of a text.
class BertForSequenceClassification : public BertHead {
 public:
  explicit BertForSequenceClassification(const BertConfig& config);            // number of classes: config.labels
  Var forward(const TextInput& input, const DropoutContext* dropout = nullptr) const;  // [batch, labels]

 private:
  nn::Linear classifier_;
};

// Initializes the weights from config.seed. Matrices and embeddings are normal with standard deviation
// initializer_range (0 for the row of the padding token); biases are 0.
void initialize(BertModule& model);

// Creates the network with initial weights: make_bert<BertForQuestionAnswering>(config).
template <class Model>
std::unique_ptr<Model> make_bert(const BertConfig& config) {
  auto model = std::make_unique<Model>(config);
  initialize(*model);
  return model;
}

// Sum of two mean cross-entropies: over the masked words, and over the batch. masked_labels: int32 [masked].
// next_sentence: int32 [batch].
Var pretraining_loss(const BertForPreTraining::Output& output, const Tensor& masked_labels,
                     const Tensor& next_sentence);

// Mean of the start and end cross-entropies over all positions of a row, including padding, as in HuggingFace. logits:
// [batch·length, 2]. starts, ends: int32 [batch], in [0, length).
Var question_answering_loss(const Var& logits, const Tensor& starts, const Tensor& ends);

}  // namespace godwit
