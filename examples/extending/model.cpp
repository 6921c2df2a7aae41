// A model: residual blocks with layer norm. Weights are saved as safetensors, which PyTorch programs can read.
#include <filesystem>

#include "quadrants.h"

using namespace godwit;

struct Block : nn::Module {
  nn::LayerNorm norm;
  nn::Linear first, second;

  explicit Block(int64_t width) : norm(width, 1e-5), first(width, 2 * width), second(2 * width, width) {
    add("norm", norm), add("first", first), add("second", second);  // parameters are named "norm.weight", …
  }
  Var operator()(const Var& x) const { return ops::add(x, second(ops::gelu(first(norm(x))))); }
};

struct ResidualNet : nn::Module {
  nn::Linear in{2, 32}, out{32, 4};
  Block block1{32}, block2{32};

  ResidualNet() {
    add("in", in), add("block1", block1), add("block2", block2), add("out", out);
    nn::initialize(*this, /*seed=*/1);  // from the seed and the parameters' names: equal on all ranks
  }
  Var operator()(const Var& x) const { return out(block2(block1(in(x)))); }
};

// Saves a network, loads it into another one, and compares their outputs.
void check_weights() {
  const std::string file = (std::filesystem::temp_directory_path() / "residual_net.safetensors").string();
  ResidualNet net, copy;
  for (const Parameter& parameter : net.parameters())
    for (float& value : parameter.var.value().span<float>()) value += 0.125f;
  nn::save_weights(file, net);
  nn::load_weights(file, copy);
  const Var x(Tensor::full({1, 2}, 0.5));
  check(net(x).value().to_vector<float>() == copy(x).value().to_vector<float>(), "weights changed in the file");
  std::filesystem::remove(file);
}

int main() {
  check_weights();
  quadrants::train<ResidualNet>("residual net", {.optimizer = Birder::Options{.lr = 0.003, .beta = 0.9}});
}
