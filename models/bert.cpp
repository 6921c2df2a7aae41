#include "models/bert.h"

#include <utility>

#include "autograd/leaf.h"
#include "autograd/ops/add.h"
#include "autograd/ops/attention/self_attention.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/column.h"
#include "autograd/ops/gelu.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/relu.h"
#include "autograd/ops/reshape.h"
#include "autograd/ops/scale.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "autograd/ops/tanh.h"
#include "engine/graph.h"
#include "nn/init.h"
#include "nn/recompute.h"

namespace godwit {
namespace {

// Dropout sites: 0 for the embeddings, 1 + 3·layer + 0…2 in a layer, then one for the head.
int64_t head_site(const BertConfig& config) { return 1 + 3 * config.num_hidden_layers; }

const BertConfig& checked(const BertConfig& config) {
  check_bert_config(config);
  return config;
}

// Sets the two default labels for question answering: HuggingFace creates one output per label.
BertConfig two_labels(BertConfig config) {
  config.labels = BertConfig().labels;
  return config;
}

void check_input(const TextInput& input, const BertConfig& config) {
  const Tensor &ids = input.ids, &token_type_ids = input.token_type_ids, &mask = input.mask;
  check(ids.defined() && ids.dtype() == DType::i32 && ids.shape().rank() == 2 && ids.numel() > 0,
        "bert: ids must be int32 [batch, length] and not empty",
        ids.defined() ? detail::concat(", got ", ids.dtype(), " ", ids.shape()) : "");
  check(ids.dim(1) <= config.max_position_embeddings, "bert: texts of ", ids.dim(1),
        " tokens exceed max_position_embeddings ", config.max_position_embeddings);
  check(!token_type_ids.defined() || (token_type_ids.dtype() == DType::i32 && token_type_ids.shape() == ids.shape()),
        "bert: token_type_ids must be int32 ", ids.shape(), " as ids are");
  check(!mask.defined() || (mask.dtype() == DType::u8 && mask.shape() == ids.shape()), "bert: mask must be uint8 ",
        ids.shape(), " as ids are");
  const auto in_range = [length = ids.dim(1)](const Tensor& numbers, int64_t limit, const char* name,
                                              const char* field) {
    const auto check_all = [=, here = numbers.to(kCpu)] {
      const int32_t* value = here.data<int32_t>();
      for (int64_t i = 0; i < here.numel(); ++i)
        check(value[i] >= 0 && value[i] < limit, "bert: ", name, " [", i / length, ", ", i % length, "] is ", value[i],
              ", expected [0, ", field, " ", limit, ")");
    };
    check_all();
    on_replay(check_all);
  };
  in_range(ids, config.vocab_size, "id", "vocab_size");
  if (token_type_ids.defined()) in_range(token_type_ids, config.type_vocab_size, "type", "type_vocab_size");
}

Tensor flat(const Tensor& x) { return x.view({x.numel()}); }

// Row indices are created and checked on the CPU, where loaders leave the ids.

// 0, 1, …, length − 1 for each text; int32 [batch·length].
Tensor positions_of(int64_t batch, int64_t length) {
  Tensor positions({batch * length}, DType::i32, kCpu);
  int32_t* at = positions.data<int32_t>();
  for (int64_t i = 0; i < positions.numel(); ++i) at[i] = static_cast<int32_t>(i % length);
  return positions;
}

Tensor zeros(int64_t n) {
  const Tensor numbers({n}, DType::i32, kCpu);
  numbers.zero();
  return numbers;
}

Var bert_activation(const std::string& name, const Var& x) {
  if (name == "relu") return ops::relu(x);
  if (name == "tanh") return ops::tanh(x);
  return ops::gelu(x, /*tanh=*/name != "gelu");
}

}  // namespace

BertModule::BertModule(const BertConfig& config, std::string architecture)
    : config_(checked(config)), architecture_(std::move(architecture)) {}

// Computes in float32 also if dtype is bfloat16, so that the sum of three rows loses no precision.
class Bert::Embeddings : public nn::Module {
 public:
  explicit Embeddings(const BertConfig& c)
      : words_(c.vocab_size, c.hidden_size, c.dtype, c.pad_token_id),
        positions_(c.max_position_embeddings, c.hidden_size, c.dtype),
        types_(c.type_vocab_size, c.hidden_size, c.dtype),
        norm_(c.hidden_size, c.layer_norm_eps, c.dtype) {
    add("word_embeddings", words_);
    add("position_embeddings", positions_);
    add("token_type_embeddings", types_);
    add("LayerNorm", norm_);
  }
  Var operator()(const TextInput& input) const {
    const Tensor token_type_ids =
        input.token_type_ids.defined() ? flat(input.token_type_ids) : zeros(input.ids.numel());
    const Var typed = ops::add(words_(flat(input.ids)), types_(token_type_ids));
    return norm_.add(typed, positions_(positions_of(input.ids.dim(0), input.ids.dim(1))));
  }
  const Var& words() const { return words_.weight(); }

 private:
  nn::Embedding words_, positions_, types_;
  nn::LayerNorm norm_;
};

// Self-attention and a two-layer MLP per token; each output is added to its input and normalized.
class Bert::Layer : public nn::Module {
 public:
  Layer(const BertConfig& c, int64_t number)
      : config_(c),
        site_(1 + 3 * number),
        query_(c.hidden_size, c.hidden_size, c.dtype),
        key_(c.hidden_size, c.hidden_size, c.dtype),
        value_(c.hidden_size, c.hidden_size, c.dtype),
        attended_(c.hidden_size, c.hidden_size, c.dtype),
        attended_norm_(c.hidden_size, c.layer_norm_eps, c.dtype),
        intermediate_(c.hidden_size, c.intermediate_size, c.dtype),
        output_(c.intermediate_size, c.hidden_size, c.dtype),
        output_norm_(c.hidden_size, c.layer_norm_eps, c.dtype) {
    add("attention.self.query", query_);
    add("attention.self.key", key_);
    add("attention.self.value", value_);
    add("attention.output.dense", attended_);
    add("attention.output.LayerNorm", attended_norm_);
    add("intermediate.dense", intermediate_);
    add("output.dense", output_);
    add("output.LayerNorm", output_norm_);
  }
  Var operator()(const Var& x, const TextInput& input, const Dropouts& dropouts) const {
    const double p = config_.hidden_dropout_prob;
    const Var y = attended_norm_.add(dropouts(attended_(attend(x, input, dropouts)), p, site_ + 1), x);
    const Var z = output_(bert_activation(config_.hidden_act, intermediate_(y)));
    return output_norm_.add(dropouts(z, p, site_ + 2), y);
  }

 private:
  Var attend(const Var& x, const TextInput& input, const Dropouts& dropouts) const {
    // Value, key, query: buckets store parameters in reverse order, so these weights have a constant positive stride.
    const Var vkq = ops::joined_linear(x, {value_.as_parameters(), key_.as_parameters(), query_.as_parameters()});
    const auto options = dropouts.attention(config_.attention_probs_dropout_prob, site_);
    return ops::self_attention(vkq, input.ids.dim(0), config_.num_attention_heads, options, input.mask,
                               QkvOrder::values_first);
  }

  const BertConfig& config_;  // owned by the Bert
  int64_t site_;
  nn::Linear query_, key_, value_, attended_;
  nn::LayerNorm attended_norm_;
  nn::Linear intermediate_, output_;
  nn::LayerNorm output_norm_;
};

Bert::Bert(const BertConfig& settings, bool pooler) : BertModule(settings, "BertModel") {
  embeddings_ = std::make_unique<Embeddings>(config());
  add("embeddings", *embeddings_);
  for (int64_t i = 0; i < config().num_hidden_layers; ++i) {
    layers_.push_back(std::make_unique<Layer>(config(), i));
    add("encoder.layer." + std::to_string(i), *layers_.back());
  }
  if (!pooler) return;
  pooler_ = std::make_unique<nn::Linear>(config().hidden_size, config().hidden_size, compute_dtype(config().dtype));
  add("pooler.dense", *pooler_);
}

Bert::~Bert() = default;

const Var& Bert::word_embeddings() const { return embeddings_->words(); }

Var Bert::forward(const TextInput& input, const DropoutContext* dropout) const {
  check_input(input, config());
  const Dropouts dropouts(dropout);
  Var x = dropouts((*embeddings_)(input), config().hidden_dropout_prob, 0);
  x = ops::cast(x, config().dtype);
  TextInput there = input;
  if (there.mask.defined()) there.mask = there.mask.to(x.value().device());  // once for all layers
  for (int64_t i = 0; i < config().num_hidden_layers; ++i) {
    const Layer& layer = *layers_[static_cast<size_t>(i)];
    const auto apply = [&layer, there, dropouts](const Var& y) { return layer(y, there, dropouts); };
    x = i < config().recompute ? nn::recompute(layer, x, apply) : apply(x);
  }
  return x;
}

Var Bert::pool(const Var& hidden, const TextInput& input) const {
  check(pooler_ != nullptr, "bert: this network has no pooler");
  const int64_t batch = input.ids.dim(0), length = input.ids.dim(1);
  Tensor first({batch}, DType::i32, kCpu);
  for (int64_t i = 0; i < batch; ++i) first.data<int32_t>()[i] = static_cast<int32_t>(i * length);
  const Var rows = ops::cast(ops::embedding(first, hidden), compute_dtype(config().dtype));
  return ops::tanh((*pooler_)(rows));
}

BertHead::BertHead(const BertConfig& config, std::string architecture, bool pooler)
    : BertModule(config, std::move(architecture)), bert_(config, pooler) {
  add("bert", bert_);
}

BertLMHead::BertLMHead(const BertConfig& config, const Bert& bert)
    : dense_(config.hidden_size, config.hidden_size, config.dtype),
      norm_(config.hidden_size, config.layer_norm_eps, config.dtype),
      activation_(config.hidden_act),
      words_(bert.word_embeddings()) {
  check(config.tie_word_embeddings,
        "bert: tie_word_embeddings is false (config.json), but the decoder of masked words ",
        "computes with the embedding's weights; expected true");
  bias_ = add_parameter("bias", Shape{config.vocab_size}, compute_dtype(config.dtype), /*decay=*/false);
  add("transform.dense", dense_);
  add("transform.LayerNorm", norm_);
}

Var BertLMHead::operator()(const Var& hidden, const Tensor& positions) const {
  check(positions.defined() && positions.numel() > 0, "bert: no masked position in the batch; expected at least one");
  const Var x = norm_(bert_activation(activation_, dense_(ops::embedding(positions, hidden))));
  return ops::cast(ops::linear(x, words_, bias_), compute_dtype(x.dtype()));
}

BertForPreTraining::BertForPreTraining(const BertConfig& config)
    : BertHead(config, "BertForPreTraining", /*pooler=*/true),
      words_(config, bert_),
      next_sentence_(config.hidden_size, 2, compute_dtype(config.dtype)) {
  add("cls.predictions", words_);
  add("cls.seq_relationship", next_sentence_);
}

BertForPreTraining::Output BertForPreTraining::forward(const TextInput& input, const Tensor& masked_positions,
                                                       const DropoutContext* dropout) const {
  const Var hidden = bert_.forward(input, dropout);
  return {words_(hidden, masked_positions), next_sentence_(bert_.pool(hidden, input))};
}

BertForMaskedLM::BertForMaskedLM(const BertConfig& config)
    : BertHead(config, "BertForMaskedLM", /*pooler=*/false), words_(config, bert_) {
  add("cls.predictions", words_);
}

Var BertForMaskedLM::forward(const TextInput& input, const Tensor& masked_positions,
                             const DropoutContext* dropout) const {
  return words_(bert_.forward(input, dropout), masked_positions);
}

BertForQuestionAnswering::BertForQuestionAnswering(const BertConfig& config)
    : BertHead(two_labels(config), "BertForQuestionAnswering", /*pooler=*/false),
      outputs_(config.hidden_size, 2, compute_dtype(config.dtype)) {
  add("qa_outputs", outputs_);
}

Var BertForQuestionAnswering::forward(const TextInput& input, const DropoutContext* dropout) const {
  return outputs_(ops::cast(bert_.forward(input, dropout), compute_dtype(config().dtype)));
}

BertForSequenceClassification::BertForSequenceClassification(const BertConfig& config)
    : BertHead(config, "BertForSequenceClassification", /*pooler=*/true),
      classifier_(config.hidden_size, std::ssize(config.labels), compute_dtype(config.dtype)) {
  add("classifier", classifier_);
}

Var BertForSequenceClassification::forward(const TextInput& input, const DropoutContext* dropout) const {
  const double p = config().classifier_dropout.value_or(config().hidden_dropout_prob);
  return classifier_(Dropouts(dropout)(bert_.pool(bert_.forward(input, dropout), input), p, head_site(config())));
}

void initialize(BertModule& model) {
  const BertConfig& config = model.config();
  nn::initialize_normal(model, config.seed, config.initializer_range);
  if (!config.pad_token_id) return;
  for (const Parameter& p : model.parameters())
    if (p.name.ends_with("word_embeddings.weight")) {
      if (Leaf(p.var).is_deferred()) nn::fill_normal(p, config.seed, config.initializer_range, *config.pad_token_id);
      else p.var.value().rows(*config.pad_token_id, 1).zero();
    }
}

Var pretraining_loss(const BertForPreTraining::Output& output, const Tensor& masked_labels,
                     const Tensor& next_sentence) {
  return ops::add(ops::softmax_cross_entropy(output.prediction_logits, masked_labels),
                  ops::softmax_cross_entropy(output.next_sentence_logits, next_sentence));
}

Var question_answering_loss(const Var& logits, const Tensor& starts, const Tensor& ends) {
  const int64_t batch = starts.numel();
  check(batch > 0 && logits.shape().rank() == 2 && logits.dim(0) % batch == 0 && logits.dim(1) == 2,
        "question_answering_loss: logits must be [batch·length, 2], got ", logits.shape(), ", the batch is ", batch);
  const auto loss = [&](int64_t column, const Tensor& labels) {
    const Var scores = ops::reshape(ops::column(logits, column), {batch, logits.dim(0) / batch});
    return ops::softmax_cross_entropy(scores, labels);
  };
  return ops::scale(ops::add(loss(0, starts), loss(1, ends)), 0.5);
}

}  // namespace godwit
