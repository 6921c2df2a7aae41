// Four nodes train with a custom compressor and, for comparison, without compression.
#include <godwit/godwit.h>

#include <cstdio>
#include <exception>

#include "natural_compressor.h"

using namespace godwit;

struct Net : nn::Module {
  nn::Linear hidden{2, 64}, out{64, 4};

  Net() {
    add("hidden", hidden), add("out", out);
    nn::initialize(*this, /*seed=*/1);
  }
  Var operator()(const Var& x) const { return out(ops::relu(hidden(x))); }
};

// Draws points of a square, whose class is their quadrant; different for each rank and step.
void draw_points(int rank, int step, const Tensor& points, const Tensor& classes) {
  RandomStream random(/*seed=*/7, Purpose::augment, static_cast<uint32_t>(rank), static_cast<uint32_t>(step));
  for (int64_t i = 0; i < classes.numel(); ++i) {
    float* at = points.data<float>() + 2 * i;
    at[0] = 2 * random.uniform() - 1, at[1] = 2 * random.uniform() - 1;
    classes.data<int32_t>()[i] = (at[0] > 0) + 2 * (at[1] > 0);
  }
}

void train(const char* title, const DataParallelOptions& options) {
  run_local({.nodes = 4}, [&](Communicator& comm) {
    Net net;
    DataParallel replica(net.parameters(), comm, options);
    const Tensor points({32, 2}), classes({32}, DType::i32);
    for (int step = 1; step <= 200; ++step) {
      draw_points(comm.rank, step, points, classes);
      const Var loss = ops::softmax_cross_entropy(net(Var(points)), classes);
      replica.step(loss);
      if (comm.rank == 0 && (step == 1 || step == 200))
        std::printf("%s: step %3d  loss %.4f  %lld bytes sent\n", title, step, loss.value().item(),
                    static_cast<long long>(comm.stats->total().bytes_inter));
    }
    replica.check_replicas();
  });
}

int main() try {
  DataParallelOptions options{.optimizer = "sgdm"};
  train("dense  ", options);
  options.make_exchange = [](const Buckets& buckets, const Communicator& comm, uint64_t seed) {
    return block_exchange(std::make_unique<NaturalCompressor>(),
                          {.name = "natural", .block_size = 32, .reply = Reply::coded}, buckets, comm, seed);
  };
  train("natural", options);
} catch (const std::exception& error) {
  std::fprintf(stderr, "compressor: %s\n", error.what());
  return 1;
}
