// Trains GPT-2 on workers of this process without sharding, with zero2 and with zero3, in alternating steps. Compares
// step time and memory. All kinds must give the same weights bit for bit.
#include "bench/measure.h"
#include "bench/settings.h"
#include "bench/step.h"
#include "models/gpt2.h"
#include "optim/data_parallel.h"

using namespace godwit;

namespace {

struct Kind {
  const char* name;
  Sharding sharding;
  bool reshard = true;
};
const std::vector<Kind> kKinds{{"none", Sharding::none},
                               {"zero2", Sharding::zero2},
                               {"zero3", Sharding::zero3},
                               {"zero3, no reshard", Sharding::zero3, false}};

// One worker's replica with one kind of sharding, and its measurements.
struct Trained {
  std::unique_ptr<Gpt2> model;
  std::unique_ptr<DataParallel> replica;
  int64_t between = 0, peak = 0;  // bytes between steps; maximum number of bytes in a step
  std::vector<double> seconds = {};
};

Trained make(const Kind& kind, const bench::Settings& settings, Communicator& comm) {
  Trained result;
  const int64_t before = context().pool->stats().bytes_in_use;
  Gpt2Config config = gpt2_config(settings.text("model"));
  config.vocab_size = settings.number("vocab"), config.n_positions = settings.number("context");
  config.embd_pdrop = config.attn_pdrop = config.resid_pdrop = 0;
  const nn::DeferParameters defer(shards_parameters(kind.sharding));
  result.model = make_gpt2(config);
  DataParallelOptions options{.optimizer = "adamw"};
  options.exchange.sharding = kind.sharding;
  options.exchange.reshard_after_forward = kind.reshard;
  options.buckets.bytes = options.buckets.first_bytes = int64_t{settings.number("mib")} << 20;
  result.replica = std::make_unique<DataParallel>(result.model->parameters(), comm, options);
  result.between = context().pool->stats().bytes_in_use - before;
  return result;
}

void step(Trained& trained, const bench::Settings& settings, Communicator& comm, int number) {
  const int64_t rows = settings.number("batch"), length = settings.number("context");
  const Tensor ids({rows, length}, DType::i32), labels({rows * length}, DType::i32);
  RandomStream random(1, Purpose::test, static_cast<uint32_t>(comm.rank), static_cast<uint32_t>(number));
  for (const Tensor& x : {ids, labels})
    for (int32_t& token : x.span<int32_t>())
      token = static_cast<int32_t>(random.next() % static_cast<uint32_t>(settings.number("vocab")));
  const int64_t before = context().pool->stats().bytes_in_use;
  comm.world->barrier("bench");
  context().pool->reset_peak();
  const double begin = bench::now();
  trained.replica->begin_step(1e-4);
  trained.replica->backward(trained.model->loss(trained.model->forward(ids), labels));
  trained.replica->finish_step();
  comm.world->barrier("bench");
  trained.seconds.push_back(bench::now() - begin);
  trained.peak = std::max(trained.peak, context().pool->stats().peak_bytes_in_use - before + trained.between);
}

// Bytes of the two largest buckets, each with its parameters and its gradients.
int64_t two_buckets(const Buckets& buckets) {
  std::vector<int64_t> bytes;
  for (const Bucket& bucket : buckets) bytes.push_back(bucket.param.bytes());
  std::sort(bytes.rbegin(), bytes.rend());
  return 2 * (bytes[0] + (bytes.size() > 1 ? bytes[1] : 0));
}

void run(const bench::Settings& settings, Communicator& comm) {
  std::vector<Trained> all;
  for (const Kind& kind : kKinds) all.push_back(make(kind, settings, comm));
  for (int i = 0; i < settings.number("steps") + 1; ++i)
    for (Trained& trained : all) step(trained, settings, comm, i);
  const uint64_t expected = all[0].replica->value_hash();
  for (size_t k = 1; k < all.size(); ++k)
    check(all[k].replica->value_hash() == expected, kKinds[k].name, ": the weights differ from those without sharding");
  if (comm.rank != 0) return;
  const Buckets& buckets = all[0].replica->buckets();
  const auto mb = [](int64_t bytes) { return static_cast<double>(bytes) * 1e-6; };
  std::printf("%ld parameters in %ld buckets, %d workers; two largest buckets with gradients: %.1f MB\n",
              static_cast<long>(buckets.numel()), static_cast<long>(buckets.size()), comm.topology.world(),
              mb(two_buckets(buckets)));
  std::printf("%-20s %10s %10s %16s %12s\n", "sharding", "ms/step", "of zero2", "between steps MB", "peak MB");
  const auto ms = [](Trained& trained) {
    return 1e3 * median({trained.seconds.begin() + 1, trained.seconds.end()});
  };
  for (size_t k = 0; k < all.size(); ++k)
    std::printf("%-20s %10.1f %10.3f %16.1f %12.1f\n", kKinds[k].name, ms(all[k]), ms(all[k]) / ms(all[1]),
                mb(all[k].between), mb(all[k].peak));
}

}  // namespace

int main(int argc, char** argv) {
  const char* usage =
      "usage: bench_sharding [model=gpt2_micro] [workers=8] [vocab=256] [context=128] [batch=2] [mib=8] [steps=10]\n"
      "Step time (median of alternating steps) and memory of a worker with AdamW: no sharding, zero2, zero3.";
  return bench::run_program(argc, argv, usage, [&] {
    const bench::Settings settings(argc, argv,
                                   {{"model", "gpt2_micro"},
                                    {"workers", "8"},
                                    {"vocab", "256"},
                                    {"context", "128"},
                                    {"batch", "2"},
                                    {"mib", "8"},
                                    {"steps", "10"}});
    run_local({1, settings.number("workers")}, [&](Communicator& comm) { run(settings, comm); },
              {.threads_per_rank = 1});
  });
}
