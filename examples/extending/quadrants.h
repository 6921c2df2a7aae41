// A small problem for the examples: points in a square. The class of a point is its quadrant.
#pragma once
#include <godwit/godwit.h>

#include <cstdio>

namespace quadrants {

// Draws 32 points and their classes. They differ between ranks and steps.
inline void draw(int rank, int step, const godwit::Tensor& points, const godwit::Tensor& classes) {
  godwit::RandomStream random(/*seed=*/7, godwit::Purpose::augment, static_cast<uint32_t>(rank),
                              static_cast<uint32_t>(step));
  for (int64_t i = 0; i < classes.numel(); ++i) {
    float* at = points.data<float>() + 2 * i;
    at[0] = 2 * random.uniform() - 1, at[1] = 2 * random.uniform() - 1;
    classes.data<int32_t>()[i] = (at[0] > 0) + 2 * (at[1] > 0);
  }
}

struct Net : godwit::nn::Module {
  godwit::nn::Linear hidden{2, 64}, out{64, 4};
  Net() {
    add("hidden", hidden), add("out", out);
    godwit::nn::initialize(*this, /*seed=*/1);
  }
  godwit::Var operator()(const godwit::Var& x) const { return out(godwit::ops::relu(hidden(x))); }
};

// Trains for 200 steps on four nodes, which are threads of this process. Prints the first and the last loss.
template <class Model = Net>
void train(const char* title, const godwit::DataParallelOptions& options) {
  godwit::run_local({.nodes = 4}, [&](godwit::Communicator& comm) {
    Model net;
    godwit::DataParallel replica(net.parameters(), comm, options);
    const godwit::Tensor points({32, 2}), classes({32}, godwit::DType::i32);
    for (int step = 1; step <= 200; ++step) {
      draw(comm.rank, step, points, classes);
      const godwit::Var loss = godwit::ops::softmax_cross_entropy(net(godwit::Var(points)), classes);
      replica.step(loss);
      if (comm.rank == 0 && (step == 1 || step == 200))
        std::printf("%s: step %3d  loss %.4f\n", title, step, loss.value().item());
    }
    replica.check_replicas();
  });
}

}  // namespace quadrants
