// Times a BERT training step on random texts with one rank. Reports the median over steps, by phase, and peak memory.
// task=squad trains start and end of the answer; task=pretrain trains 15 % masked tokens and next-sentence prediction.
// Dropout is 10 %.
// bench/peers/bert_step.py is the HuggingFace counterpart. `bench/peers/compare PYTHON ROUNDS bert_step` alternates
// both.
#include "bench/program.h"
#include "bench/step.h"
#include "engine/philox.h"
#include "models/bert.h"

using namespace godwit;

namespace {

// Indices stay on the CPU, as with a loader. The host checks indices, and would have to copy them back from a GPU.
Tensor draw(RandomStream& random, const Shape& shape, int64_t limit) {
  const Tensor x(shape, DType::i32, kCpu);
  for (int32_t& value : x.span<int32_t>()) value = static_cast<int32_t>(random.below(static_cast<uint32_t>(limit)));
  return x;
}

void run(const bench::Settings& settings, Communicator& comm) {
  const int64_t batch = settings.number("batch"), length = settings.number("length");
  const std::string task = settings.text("task");
  check(task == "squad" || task == "pretrain", "bench_bert_step: task is '", task, "'; expected squad or pretrain");
  BertConfig config = bert_config(settings.text("model"));
  config.dtype = settings.dtype();
  RandomStream random(1, Purpose::test);
  const TextInput input{draw(random, {batch, length}, config.vocab_size), draw(random, {batch, length}, 2),
                        Tensor::full({batch, length}, 1, DType::u8)};
  const Tensor starts = draw(random, {batch}, length), ends = draw(random, {batch}, length);
  const int64_t masked = std::max<int64_t>(1, batch * length * 15 / 100);
  const Tensor positions({masked}, DType::i32, kCpu);
  for (int64_t i = 0; i < masked; ++i) positions.data<int32_t>()[i] = static_cast<int32_t>(i * batch * length / masked);
  const Tensor words = draw(random, {masked}, config.vocab_size), next = draw(random, {batch}, 2);
  const Tensor counter({1}, DType::u32, kCpu);
  const auto dropout = [&](int step) {
    if (!settings.graph()) return DropoutContext{1, static_cast<uint32_t>(step), 0};
    counter.data<uint32_t>()[0] = static_cast<uint32_t>(step);
    on_replay([at = counter] { ++at.data<uint32_t>()[0]; });
    return DropoutContext{1, 0, 0, counter.to(context().device)};
  };
  const std::string what = detail::concat(task, " batch ", batch, ", ", length, " tokens");
  const double lr = 5e-5;
  if (task == "squad") {
    const auto model = make_bert<BertForQuestionAnswering>(config);
    bench::time_steps(settings, comm, *model, lr, what, "texts", [&](int step) {
      const DropoutContext one = dropout(step);
      return question_answering_loss(model->forward(input, &one), starts, ends);
    });
  } else {
    const auto model = make_bert<BertForPreTraining>(config);
    bench::time_steps(settings, comm, *model, lr, what, "texts", [&](int step) {
      const DropoutContext one = dropout(step);
      return pretraining_loss(model->forward(input, positions, &one), words, next);
    });
  }
}

}  // namespace

int main(int argc, char** argv) {
  const char* usage =
      "usage: bench_bert_step [KEY=VALUE…]\n"
      "A training step of a BERT on random texts, one rank: median time by phase, peak memory.\n"
      "keys: model=bert_base batch=8 length=128 task=squad|pretrain optimizer=adamw threads=0 (0: all cores)\n"
      "      steps=7 dtype=f32|bf16 graph=0 (1: CUDA graphs) device=cpu json=0 (1: one line of JSON)";
  return bench::run_program(argc, argv, usage, [&] {
    const bench::Settings settings(
        argc, argv,
        {{"model", "bert_base"}, {"batch", "8"}, {"length", "128"}, {"task", "squad"}, {"optimizer", "adamw"},
         {"threads", "0"},       {"steps", "7"}, {"dtype", "f32"}, {"graph", "0"}});
    settings.run_alone(settings.number("threads"), [&](Communicator& comm) { run(settings, comm); });
  });
}
