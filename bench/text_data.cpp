// Benchmarks text preparation: reading SQuAD's training set, features, batches with and without sorting by length, and
// pre-training samples.
//   bench_text_data FOLDER [THREADS] [TEXT]      FOLDER contains squad/train-v1.1.json.gz and bert-vocab/vocab.txt
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "bench/program.h"
#include "data/text/pretraining.h"
#include "data/text/squad_features.h"
#include "data/text/text_loader.h"
#include "engine/check.h"

using namespace godwit;

namespace {

template <class F>
double seconds(F&& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double peak_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// Times one epoch of training batches.
void load(const data::TextDataset& source, const char* name, int threads, int64_t window) {
  data::TextLoader loader(source, {.batch = 32, .prefetch = 4, .workers = threads}, window);
  double tokens = 0, padded = 0, wait = 0;
  const double spent = seconds([&] {
    wait = seconds([&] { loader.start_epoch(0); });
    while (auto batch = loader.next()) {
      padded += static_cast<double>(batch->ids.numel());
      for (uint8_t one : batch->mask.span<uint8_t>()) tokens += one;
    }
  });
  check(tokens > 0 && tokens <= padded, name, ": ", tokens, " tokens in ", padded);
  std::printf("%s, batches of 32, window %d: %.2f s, %.3g tokens/s, first batch after %.2f s, %.1f %% padding\n", name,
              static_cast<int>(window), spent, tokens / spent, wait, 100 * (1 - tokens / padded));
}

void run(const std::string& folder, int threads, const std::string& text) {
  const data::WordPiece tokenizer(data::read_vocabulary(folder + "/bert-vocab/vocab.txt"));
  data::Squad squad;
  const double reading = seconds([&] { squad = data::read_squad(folder + "/squad/train-v1.1.json.gz"); });
  std::printf("read %zu questions: %.2f s, peak %.0f MB\n", squad.questions.size(), reading, peak_mb());
  for (int used = 1; used <= threads; used *= 2) {
    std::unique_ptr<data::SquadFeatures> features;
    const double spent = seconds([&] {
      features = std::make_unique<data::SquadFeatures>(squad, tokenizer, data::SquadOptions{.threads = used});
    });
    std::printf("features, %d threads: %.2f s, %lld windows, peak %.0f MB\n", used, spent,
                static_cast<long long>(features->size()), peak_mb());
    if (used * 2 > threads)
      for (const int64_t window : {1, 64}) load(*features, "SQuAD", threads, window);
  }
  if (text.empty()) return;
  const data::Corpus corpus = data::read_corpus(text);
  std::unique_ptr<data::PretrainingDataset> source;
  const double spent = seconds([&] {
    source = std::make_unique<data::PretrainingDataset>(corpus, tokenizer,
                                                        data::PretrainingOptions{.threads = threads});
  });
  std::printf("pre-training, %d threads: %lld tokens in %.2f s, %lld samples\n", threads,
              static_cast<long long>(source->tokens()), spent, static_cast<long long>(source->size()));
  load(*source, "pre-training", threads, 64);
}

}  // namespace

int main(int argc, char** argv) {
  const char* usage =
      "usage: bench_text_data FOLDER [THREADS] [TEXT]\n"
      "Reads SQuAD's training set, cuts it into features and batches; with TEXT also samples for pre-training.\n"
      "FOLDER holds squad/train-v1.1.json.gz and bert-vocab/vocab.txt   THREADS: 2";
  return bench::run_program(argc, argv, usage, [&] {
    check(argc >= 2 && argc <= 4, usage);
    run(argv[1], argc > 2 ? static_cast<int>(bench::whole_number(argv[2], "THREADS")) : 2, argc > 3 ? argv[3] : "");
  });
}
