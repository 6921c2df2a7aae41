// BertConfig: the sizes and settings of a BERT model, with the names of HuggingFace's config.json.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/dtype.h"

namespace godwit {

// Sizes, activations and initialization of a BERT model.
struct BertConfig {
  // hidden_size must be a multiple of num_attention_heads.
  int64_t vocab_size = 30522, hidden_size = 768, num_hidden_layers = 12, num_attention_heads = 12;
  int64_t intermediate_size = 3072;  // width of the feed-forward layers
  std::string hidden_act = "gelu";  // erf form; gelu_new or gelu_pytorch_tanh (tanh form), relu, tanh
  // Dropout of activations and embeddings, and dropout of attention probabilities.
  double hidden_dropout_prob = 0.1, attention_probs_dropout_prob = 0.1;
  std::optional<double> classifier_dropout;  // before the classifier; unset: hidden_dropout_prob
  int64_t max_position_embeddings = 512, type_vocab_size = 2;  // number of positions and of token types
  std::optional<int64_t> pad_token_id = 0;  // padding; its embedding is initially 0 and gets no gradient as an input
  double initializer_range = 0.02, layer_norm_eps = 1e-12;  // deviation of the initial weights; added to variances
  std::vector<std::string> labels{"LABEL_0", "LABEL_1"};  // class names of a sequence classifier (id2label)
  bool tie_word_embeddings = true;                        // must be true for heads that predict masked words

  DType dtype = DType::f32;  // or f64; bf16: activations within the encoder; the rest is float32
  uint64_t seed = 1;         // seed of the initial parameters
  // Number of first layers whose activations the backward pass recomputes. This saves memory and leaves gradients
  // unchanged.
  int64_t recompute = 0;
};

// Names: bert_tiny, bert_mini, bert_small, bert_medium, bert_base, bert_large.
std::vector<std::string> bert_names();
BertConfig bert_config(const std::string& name);  // throws for an unknown name; suggests the nearest

// Throws for invalid settings. The Error names the field and its value.
void check_bert_config(const BertConfig& config);

uint64_t hash(const BertConfig& config);  // hash of all fields except seed and recompute

// Reads a config.json, or the config.json in a folder. Missing fields get HuggingFace's defaults. Throws an Error that
// names the file, field and value if a field is malformed or out of range, or requires another architecture.
BertConfig read_bert_config(const std::string& path);

// Reads the classes of a sequence classifier's config.json: BertConfig::labels. Throws an Error that names the file,
// field and value if label2id or num_labels contradicts id2label, two classes have one name, or problem_type is not
// classification with one class per text.
std::vector<std::string> read_class_names(const std::string& path);

// Writes a config.json for transformers: either the whole file or nothing. `architecture`: class name
// ("BertForMaskedLM").
void write_bert_config(const std::string& path, const BertConfig& config, const std::string& architecture);

}  // namespace godwit
