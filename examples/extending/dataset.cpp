// A dataset: 12×12 images with stripes of one of four slopes. The images are created when they are read. The loader
// shuffles them, splits them over the ranks, and prefetches.
#include <cstdio>

#include "godwit/godwit.h"

using namespace godwit;

class Stripes : public data::ImageDataset {
 public:
  int64_t size() const override { return 2048; }
  int64_t classes() const override { return 4; }
  Shape image_shape() const override { return {12, 12, 1}; }
  uint64_t hash() const override { return 0x57121FE5; }  // of the content; equal on ranks with the same data

  int32_t read(int64_t sample, float* to) const override { return draw(sample, 0, to); }
  int32_t read_augmented(int64_t sample, int64_t epoch, float* to) const override { return draw(sample, epoch, to); }

 private:
  // Thread-safe: depends on its arguments only.
  static int32_t draw(int64_t sample, int64_t epoch, float* to) {
    RandomStream random(/*seed=*/7, Purpose::augment, static_cast<uint32_t>(sample), static_cast<uint32_t>(epoch));
    const int slope = static_cast<int>(sample % 4);
    for (int y = 0; y < 12; ++y)
      for (int x = 0; x < 12; ++x)
        *to++ = static_cast<float>((x + slope * y) % 4 < 2) + 0.5f * static_cast<float>(random.normal());
    return slope;
  }
};

struct Net : nn::Module {
  nn::Conv2d conv{1, 16, 3, {.padding = 1}};
  nn::BatchNorm2d norm{16};
  nn::Linear out{16, 4};
  Net() {
    add("conv", conv), add("norm", norm), add("out", out);
    nn::initialize(*this, /*seed=*/1);
  }
  Var operator()(const Var& x) const { return out(ops::global_avg_pool(norm(conv(x), true))); }
};

int main() {
  const Stripes stripes;
  run_local({.nodes = 2}, [&](Communicator& comm) {
    Net net;
    DataParallel replica(net.parameters(), comm, {.optimizer = "adamw"});
    data::Loader loader(stripes, {.batch = 16, .rank = comm.rank, .world = 2, .seed = 1});
    for (int64_t epoch = 1; epoch <= 3; ++epoch) {
      loader.start_epoch(epoch);
      double last = 0, first = 0;
      while (const std::optional<data::Batch> batch = loader.next()) {
        const Var loss = ops::softmax_cross_entropy(net(Var(batch->images)), batch->labels);
        replica.step(loss);
        last = loss.value().item(), first = first == 0 ? last : first;
      }
      if (comm.rank == 0) std::printf("stripes: loss %.4f\nstripes: loss %.4f\n", first, last);
    }
  });
}
