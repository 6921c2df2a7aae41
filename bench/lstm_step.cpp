// Times a training step of LSTM layers, or of an LSTM language model, on random tokens: median over steps, by phase.
//   bench_lstm_step [width=650] [layers=2] [batch=20] [length=35] [vocab=0] [optimizer=sgd] [threads=cores] [steps=15]
//                   [dtype=f32] [graph=0] [device=cpu] [json=0]
// vocab=0: only the layers, on random inputs, with the mean of ½·y² as the loss. Otherwise: a language model with this
// vocabulary. bench/peers/lstm_step.py is the PyTorch counterpart with the same weights and inputs; its losses must be
// equal. bench/peers/compare alternates both.
#include "autograd/ops/cast.h"
#include "autograd/ops/matmul.h"
#include "autograd/ops/reshape.h"
#include "autograd/ops/scale.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "bench/program.h"
#include "bench/step.h"
#include "models/lstm.h"

using namespace godwit;

namespace {

// Value i of the table `name`: a multiple of 2⁻²³ in [-1, 1). The peer computes the same integer hash.
float hashed(const std::string& name, int64_t i) {
  uint32_t x = 0x811C9DC5u;
  for (const char c : name) x = (x ^ static_cast<unsigned char>(c)) * 0x01000193u;
  x += static_cast<uint32_t>(i) * 0x9E3779B9u;
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return static_cast<float>(static_cast<double>((x ^ (x >> 16)) >> 8) * 0x1p-23 - 1.0);
}

Tensor table(const std::string& name, const Shape& shape, float scale) {
  const Tensor x(shape, DType::f32, kCpu);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = scale * hashed(name, i);
  return x.to(context().device);
}

void fill(const nn::Module& module) {
  for (const Parameter& p : module.parameters()) p.var.value().copy_from(table(p.name, p.var.shape(), 0.0625f));
}

void run(const bench::Settings& settings, Communicator& comm) {
  const int64_t width = settings.number("width"), layers = settings.number("layers"), batch = settings.number("batch");
  const int64_t length = settings.number("length"), vocabulary = settings.number("vocab");
  const std::string what = detail::concat(layers, "x", width, ", batch ", batch, ", length ", length,
                                          vocabulary > 0 ? detail::concat(", vocabulary ", vocabulary) : "");
  if (vocabulary == 0) {
    const nn::Lstm lstm(width, std::vector<int64_t>(static_cast<size_t>(layers), width), settings.dtype());
    fill(lstm);
    const Var x(table("x", {length, batch, width}, 1).to(settings.dtype()));
    const nn::Lstm::State state = lstm.zero_state(batch);
    bench::time_steps(settings, comm, lstm, 0.5, what, "sequences", [&](int) {
      const Var y = ops::reshape(ops::cast(lstm(x, state).y, DType::f32), {1, length * batch * width});
      const double n = static_cast<double>(y.value().numel());
      return ops::scale(ops::reshape(ops::matmul(y, y, false, true), {}), 0.5 / n);
    });
    return;
  }
  LstmConfig config{.vocab_size = vocabulary, .embedding = width, .hidden = width, .layers = layers};
  config.input_dropout = config.hidden_dropout = config.output_dropout = 0;
  config.dtype = settings.dtype();
  const LstmLanguageModel model(config);
  fill(model);
  const Tensor ids({length, batch}, DType::i32, kCpu), labels({length * batch}, DType::i32, kCpu);
  for (int64_t i = 0; i < ids.numel(); ++i) {
    const auto word = [&](const char* name) {
      const float unit = (hashed(name, i) + 1) / 2;
      return static_cast<int32_t>(static_cast<int64_t>(unit * static_cast<float>(vocabulary)) % vocabulary);
    };
    ids.data<int32_t>()[i] = word("ids");
    labels.data<int32_t>()[i] = word("labels");
  }
  const LstmLanguageModel::State state = model.zero_state(batch);
  bench::time_steps(settings, comm, model, 0.5, what, "sequences", [&](int) {
    return ops::softmax_cross_entropy(model.forward(ids, state).logits, labels);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const char* usage =
      "usage: bench_lstm_step [KEY=VALUE…]\n"
      "A training step of LSTM layers, one rank: median time by phase, peak memory.\n"
      "keys: width=650 layers=2 batch=20 length=35 vocab=0 (0: the layers alone) optimizer=sgd\n"
      "      threads=0 (0: all cores) steps=15 dtype=f32|bf16 graph=0 (1: CUDA graphs) device=cpu\n"
      "      json=0 (1: one line of JSON)";
  return bench::run_program(argc, argv, usage, [&] {
    const bench::Settings settings(argc, argv,
                                   {{"model", "lstm"}, {"width", "650"}, {"layers", "2"}, {"batch", "20"},
                                    {"length", "35"},  {"vocab", "0"},   {"optimizer", "sgd"}, {"threads", "0"},
                                    {"steps", "15"},   {"dtype", "f32"}, {"graph", "0"}});
    settings.run_alone(settings.number("threads"), [&](Communicator& comm) { run(settings, comm); });
  });
}
