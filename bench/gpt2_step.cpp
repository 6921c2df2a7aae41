// Times a GPT-2 training step without dropout with one rank. Reports the median over steps, by phase, and peak memory.
// bench/peers/gpt2_step.py is the PyTorch counterpart, and bench/peers/llmc_step.c runs llm.c. All three train on one
// batch: token i is i · 2654435761 mod 2³², scaled to the vocabulary. `bench/peers/compare PYTHON ROUNDS gpt2_step`
// alternates them.
#include <fstream>

#include "bench/program.h"
#include "bench/step.h"
#include "models/gpt2.h"

using namespace godwit;

namespace {

// Tokens first, first + 1, … of the text; int32.
Tensor tokens(int64_t first, const Shape& shape, int64_t vocabulary) {
  const Tensor ids(shape, DType::i32, kCpu);
  for (int64_t i = 0; i < ids.numel(); ++i) {
    const auto mixed = static_cast<uint32_t>(static_cast<uint64_t>(first + i) * 2654435761U);
    ids.data<int32_t>()[i] =
        static_cast<int32_t>(static_cast<uint64_t>(mixed) * static_cast<uint64_t>(vocabulary) >> 32);
  }
  return ids;
}

// Losses of the first steps, one per line.
std::vector<double> read_losses(const std::string& path) {
  if (path.empty()) return {};
  std::ifstream file(path);
  std::vector<double> losses;
  for (double loss; file >> loss;) losses.push_back(loss);
  check(!losses.empty() && file.eof(), path, ": expected one loss per line");
  return losses;
}

void run(const bench::Settings& settings, Communicator& comm) {
  Gpt2Config config = gpt2_config(settings.text("model"));
  config.dtype = settings.dtype();
  config.embd_pdrop = config.attn_pdrop = config.resid_pdrop = 0;
  config.recompute = settings.number("recompute");
  const std::string& folder = settings.text("weights");
  const auto model = folder.empty() ? make_gpt2(config) : std::make_unique<Gpt2>(config);
  if (!folder.empty()) load_pretrained(folder, *model);
  if (const std::string& to = settings.text("save"); !to.empty()) return save_pretrained(to, *model);
  const int64_t batch = settings.number("batch"), length = settings.number("length");
  const Tensor ids = tokens(0, {batch, length}, config.vocab_size);
  const Tensor labels = tokens(1, {batch * length}, config.vocab_size);
  bench::time_steps(settings, comm, *model, 1e-4, detail::concat("batch ", batch, ", ", length, " tokens"), "texts",
                    [&](int) { return model->loss(model->forward(ids), labels); },
                    read_losses(settings.text("losses")));
}

}  // namespace

int main(int argc, char** argv) {
  const char* usage =
      "usage: bench_gpt2_step [KEY=VALUE…]\n"
      "A training step of a GPT-2 without dropout, one rank: median time by phase, peak memory.\n"
      "keys: model=gpt2 batch=4 length=1024 optimizer=adamw threads=0 (0: all cores) steps=7 dtype=f32|bf16\n"
      "      recompute=0 (layers to compute again in backward) graph=0 (1: CUDA graphs) device=cpu\n"
      "      json=0 (1: one line of JSON)\n"
      "      save=DIR (write the initial weights as a HuggingFace folder, and exit) weights=DIR (start from them)\n"
      "      losses=FILE (expected losses of the first steps, one per line; another loss is an error)";
  return bench::run_program(argc, argv, usage, [&] {
    const bench::Settings settings(argc, argv,
                                   {{"model", "gpt2"},
                                    {"batch", "4"},
                                    {"length", "1024"},
                                    {"optimizer", "adamw"},
                                    {"threads", "0"},
                                    {"steps", "7"},
                                    {"dtype", "f32"},
                                    {"graph", "0"},
                                    {"save", ""},
                                    {"weights", ""},
                                    {"losses", ""},
                                    {"recompute", "0"}});
    settings.run_alone(settings.number("threads"), [&](Communicator& comm) { run(settings, comm); });
  });
}
