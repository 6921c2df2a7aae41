// BERT (Devlin et al. 2018) and its heads; parameters are named, shaped and ordered as in HuggingFace transformers.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/bert_config.h"
#include "nn/layers.h"

namespace godwit {

struct TextInput {
  Tensor ids;    // int32 [batch, length], in [0, vocab_size)
  Tensor types;  // int32 [batch, length], in [0, type_vocab_size); undefined: all 0
  Tensor mask;   // uint8 [batch, length], 1 = a token, 0 = padding; undefined: all tokens
};

// What names the dropped elements of one forward pass in training. Passes without one drop nothing.
struct DropoutRun {
  uint64_t seed;
  uint32_t step;  // global number of the micro-batch: another one in every pass, the same after a resume
  uint32_t rank;
  Tensor counter = {};  // in the place of `step`: see DropoutKey
};

// A network of HuggingFace's: what pretrained.h loads and saves. Weights are zero until make_bert or a file fills them.
class BertModule : public nn::Module {
 public:
  const BertConfig& config() const { return config_; }
  const std::string& architecture() const { return architecture_; }  // HuggingFace's name of the class

 protected:
  BertModule(const BertConfig& config, std::string architecture);  // throws for settings that describe no network

 private:
  const BertConfig config_;
  const std::string architecture_;
};

// Embeddings and encoder, with a pooler on the first token where one is wanted.
class Bert : public BertModule {
 public:
  explicit Bert(const BertConfig& config, bool pooler = true);
  ~Bert() override;

  // Hidden states [batch·length, hidden_size] of config.dtype. Throws where ids, types or mask are malformed, out of
  // range, or longer than max_position_embeddings.
  Var forward(const TextInput& input, const DropoutRun* run = nullptr) const;
  // tanh of a linear layer on the first token's: [batch, hidden_size] of the parameters' type.
  Var pool(const Var& hidden, const TextInput& input) const;
  const Var& word_embeddings() const;  // [vocab_size, hidden_size]

 private:
  class Embeddings;
  class Layer;

  std::unique_ptr<Embeddings> embeddings_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::unique_ptr<nn::Linear> pooler_;
};

// What the heads share: the Bert under the name "bert".
class BertHead : public BertModule {
 public:
  const Bert& bert() const { return bert_; }

 protected:
  BertHead(const BertConfig& config, std::string architecture, bool pooler);

  Bert bert_;
};

// Scores of all words at chosen places. The decoder's weight is word_embeddings: one parameter.
class MaskedWords : public nn::Module {
 public:
  MaskedWords(const BertConfig& config, const Bert& bert);
  // positions int32 [masked], each a row of hidden [batch·length, hidden_size] -> [masked, vocab_size], not bfloat16.
  Var operator()(const Var& hidden, const Tensor& positions) const;

 private:
  Var bias_;
  nn::Linear dense_;
  nn::LayerNorm norm_;
  std::string activation_;
  Var words_;
};

class BertForPreTraining : public BertHead {
 public:
  struct Output {
    Var prediction_logits;     // [masked, vocab_size]
    Var next_sentence_logits;  // [batch, 2]; class 0: is next
  };
  explicit BertForPreTraining(const BertConfig& config);
  Output forward(const TextInput& input, const Tensor& masked_positions, const DropoutRun* run = nullptr) const;

 private:
  MaskedWords words_;
  nn::Linear next_sentence_;
};

class BertForMaskedLM : public BertHead {
 public:
  explicit BertForMaskedLM(const BertConfig& config);
  Var forward(const TextInput& input, const Tensor& masked_positions, const DropoutRun* run = nullptr) const;

 private:
  MaskedWords words_;
};

class BertForQuestionAnswering : public BertHead {
 public:
  explicit BertForQuestionAnswering(const BertConfig& config);
  Var forward(const TextInput& input, const DropoutRun* run = nullptr) const;  // [batch·length, 2]: begin, end

 private:
  nn::Linear outputs_;
};

class BertForSequenceClassification : public BertHead {
 public:
  explicit BertForSequenceClassification(const BertConfig& config);            // config.labels
  Var forward(const TextInput& input, const DropoutRun* run = nullptr) const;  // [batch, labels]

 private:
  nn::Linear classifier_;
};

// Matrices and embeddings normal with deviation initializer_range (padding's row 0), from config.seed; biases 0.
void initialise(BertModule& model);

// make_bert<BertForQuestionAnswering>(config): the network with its initial weights.
template <class Model>
std::unique_ptr<Model> make_bert(const BertConfig& config) {
  auto model = std::make_unique<Model>(config);
  initialise(*model);
  return model;
}

// Means over the masked words and over the batch, added. masked_labels int32 [masked], next_sentence int32 [batch].
Var pretraining_loss(const BertForPreTraining::Output& output, const Tensor& masked_labels,
                     const Tensor& next_sentence);

// The mean of the two cross-entropies over the places of a row, padding included, as HuggingFace has it. logits
// [batch·length, 2]; starts, ends int32 [batch], in [0, length).
Var question_answering_loss(const Var& logits, const Tensor& starts, const Tensor& ends);

}  // namespace godwit
