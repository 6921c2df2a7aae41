// A custom network and training loop. Four nodes, which are threads of this process, train with Birder.
#include <godwit/godwit.h>

#include <cstdio>
#include <exception>

using namespace godwit;

struct Net : nn::Module {
  nn::Conv2d conv1{1, 16, 3, {.padding = 1}}, conv2{16, 32, 3, {.stride = 2, .padding = 1}};
  nn::BatchNorm2d bn1{16}, bn2{32};
  nn::Linear fc{32, 4};

  Net() {
    add("conv1", conv1), add("bn1", bn1), add("conv2", conv2), add("bn2", bn2), add("fc", fc);
    nn::initialize(*this, /*seed=*/1);
  }
  Var operator()(const Var& x) const { return fc(ops::global_avg_pool(bn2(conv2(bn1(conv1(x), true)), true))); }
};

// Draws sixteen noisy 12×12 images with stripes of one of four slopes; different for each rank and step.
data::Batch stripes(int rank, int step) {
  data::Batch batch{Tensor({16, 12, 12, 1}), Tensor({16}, DType::i32)};
  RandomStream random(/*seed=*/7, Purpose::augment, static_cast<uint32_t>(rank), static_cast<uint32_t>(step));
  for (int i = 0; i < 16; ++i) {
    const int slope = batch.labels.data<int32_t>()[i] = static_cast<int32_t>(random.below(4));
    for (int y = 0; y < 12; ++y)
      for (int x = 0; x < 12; ++x)
        batch.images.data<float>()[(i * 12 + y) * 12 + x] =
            static_cast<float>((x + slope * y) % 4 < 2) + 0.5 * random.normal();
  }
  return batch;
}

int main() try {
  run_local({.nodes = 4}, [](Communicator& comm) {
    Net net;
    DataParallel replica(net.parameters(), comm, {.optimizer = "birder"});
    for (int step = 1; step <= 100; ++step) {
      const data::Batch batch = stripes(comm.rank, step);
      const Var loss = ops::softmax_cross_entropy(net(Var(batch.images)), batch.labels);
      replica.step(loss);
      if (comm.rank == 0 && step % 20 == 1) std::printf("step %3d  loss %.4f\n", step, loss.value().item());
    }
    nn::average_buffers(net, *comm.world);
    if (comm.rank == 0) nn::save_weights("net.safetensors", net);
  });
} catch (const std::exception& error) {
  std::fprintf(stderr, "embed: %s\n", error.what());
  return 1;
}
