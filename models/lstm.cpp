#include "models/lstm.h"

#include <cmath>

#include "autograd/ops/cast.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/reshape.h"
#include "models/named_configs.h"
#include "nn/init.h"

namespace godwit {
namespace {

const LstmConfig& checked(const LstmConfig& c) {
  check(c.vocab_size > 0 && c.embedding > 0 && c.hidden > 0 && c.layers > 0,
        "lstm: vocab_size, embedding, hidden and layers must be positive, got ", c.vocab_size, ", ", c.embedding, ", ",
        c.hidden, " and ", c.layers);
  for (const double p : {c.input_dropout, c.hidden_dropout, c.output_dropout, c.weight_dropout})
    check(p >= 0 && p < 1, "lstm: a dropout is ", p, ", expected a fraction in [0, 1)");
  check(c.init_range >= 0 && c.recurrent_range >= 0, "lstm: init_range and recurrent_range must not be negative, ",
        "got ", c.init_range, " and ", c.recurrent_range);
  return c;
}

std::vector<int64_t> widths_of(const LstmConfig& c) {
  std::vector<int64_t> widths(static_cast<size_t>(c.layers), c.hidden);
  if (c.tied) widths.back() = c.embedding;
  return widths;
}

// Dropout sites: 0 for the embeddings, 1 for the output, then those of the layers.
constexpr int64_t kInputSite = 0, kOutputSite = 1, kFirstLayerSite = 2;

// Zaremba et al. 2014, section 4.1; Merity et al. 2017, section 5 with the dropout of AdaBelief's experiments.
const NamedConfigs<LstmConfig>& lstm_table() {
  static const NamedConfigs<LstmConfig> rows{
      {"lstm_small",
       {.embedding = 200, .hidden = 200, .input_dropout = 0, .hidden_dropout = 0, .output_dropout = 0,
        .init_range = 0.1, .recurrent_range = 0.1}},
      {"lstm_medium", {}},
      {"lstm_large",
       {.embedding = 1500, .hidden = 1500, .input_dropout = 0.65, .hidden_dropout = 0.65, .output_dropout = 0.65,
        .init_range = 0.04, .recurrent_range = 0.04}},
      {"lstm_awd",
       {.embedding = 400, .hidden = 1150, .layers = 3, .tied = true, .input_dropout = 0.4, .hidden_dropout = 0.25,
        .output_dropout = 0.4, .weight_dropout = 0.5, .init_range = 0.1, .recurrent_range = 0}},
  };
  return rows;
}

}  // namespace

std::vector<std::string> lstm_names() { return names_of(lstm_table()); }

LstmConfig lstm_config(const std::string& name) { return config_of(lstm_table(), "lstm", name); }

struct LstmLanguageModel::Encoder : nn::Module {
  explicit Encoder(const LstmConfig& c) {
    weight = add_parameter("weight", Shape{c.vocab_size, c.embedding}, compute_dtype(c.dtype));
  }
  Var weight;
};

struct LstmLanguageModel::Decoder : nn::Module {
  Decoder(const LstmConfig& c, const Encoder& encoder) {
    const DType type = compute_dtype(c.dtype);
    weight = c.tied ? encoder.weight : add_parameter("weight", Shape{c.vocab_size, c.hidden}, type);
    bias = add_parameter("bias", Shape{c.vocab_size}, type, /*decay=*/false);
  }
  Var weight, bias;
};

LstmLanguageModel::LstmLanguageModel(const LstmConfig& config)
    : config_(checked(config)),
      encoder_(std::make_unique<Encoder>(config)),
      rnn_(config.embedding, widths_of(config), config.dtype),
      decoder_(std::make_unique<Decoder>(config, *encoder_)) {
  add("encoder", *encoder_), add("rnn", rnn_), add("decoder", *decoder_);
}

LstmLanguageModel::~LstmLanguageModel() = default;

LstmLanguageModel::Output LstmLanguageModel::forward(const Tensor& ids, const State& initial,
                                                     const DropoutContext* dropout) const {
  check(ids.defined() && ids.dtype() == DType::i32 && ids.shape().rank() == 2 && ids.numel() > 0,
        "lstm: ids must be int32 [time, batch] and not empty",
        ids.defined() ? detail::concat(", got ", ids.dtype(), " ", ids.shape()) : "");
  const int64_t time = ids.dim(0), batch = ids.dim(1);
  const auto drop = [&](const Var& x, double p, int64_t site) {
    return dropout ? ops::dropout(x, p, dropout->key(site)) : x;
  };
  Var x = drop(ops::embedding(ids.view({ids.numel()}), encoder_->weight), config_.input_dropout, kInputSite);
  x = ops::reshape(ops::cast(x, config_.dtype), {time, batch, config_.embedding});
  const nn::Lstm::Output out = rnn_(x, initial,
                                    {.between = config_.hidden_dropout,
                                     .weights = config_.weight_dropout,
                                     .context = dropout,
                                     .first_site = kFirstLayerSite});
  const Var hidden = drop(ops::reshape(out.y, {time * batch, out.y.dim(2)}), config_.output_dropout, kOutputSite);
  return {ops::cast(ops::linear(hidden, decoder_->weight, decoder_->bias), compute_dtype(config_.dtype)), out.state};
}

std::unique_ptr<LstmLanguageModel> make_lstm(const LstmConfig& config) {
  auto model = std::make_unique<LstmLanguageModel>(config);
  const auto bound = [&](const Parameter& p) -> double {
    if (p.name == "decoder.bias") return 0;
    if (!p.name.starts_with("rnn.")) return config.init_range;
    const double width = static_cast<double>(p.var.dim(0)) / 4;
    return config.recurrent_range > 0 ? config.recurrent_range : 1 / std::sqrt(width);
  };
  nn::initialize_uniform(*model, config.seed, bound);
  return model;
}

void carry_state(const LstmLanguageModel::State& state, const LstmLanguageModel::State& to) {
  check(state.size() == to.size(), "lstm: a state of ", state.size(), " layers, expected ", to.size());
  for (size_t k = 0; k < state.size(); ++k) {
    to[k].h.value().copy_from(state[k].h.value());
    to[k].c.value().copy_from(state[k].c.value());
  }
}

}  // namespace godwit
