// Tensor files: safetensors, weights of a model, state and manifest of a checkpoint.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "comm/transport/local.h"
#include "engine/safetensors.h"
#include "nn/weights.h"
#include "optim/checkpoint_files.h"
#include "optim/saved_state.h"
#include "tests/fuzz/target.h"

namespace godwit::fuzz {
namespace {

using Tensors = std::map<std::string, Tensor>;
using Metadata = std::map<std::string, std::string>;

bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0);
}

bool same(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, values] : a)
    if (!b.contains(name) || !same(values, b.at(name))) return false;
  return true;
}

void safetensors(Input input) {
  const std::string path = file_of(input), copy = path_of("copy");
  Metadata metadata, again;
  const Tensors tensors = load_safetensors(path, &metadata);
  require(same(tensors, map_safetensors(path)), "mapped tensors equal loaded ones");
  save_safetensors(copy, {tensors.begin(), tensors.end()}, metadata);
  require(same(tensors, load_safetensors(copy, &again)) && metadata == again, "saved tensors are read again");
}

struct SmallModule : nn::Module {
  SmallModule() {
    add_parameter("weight", Shape{2, 1, 2, 3}, DType::f32, /*decay=*/true, 0, FileLayout::channels_first);
    add_parameter("bias", Tensor({2}, DType::f32, kCpu));
    add_buffer("running_mean", Tensor({2}, DType::f32, kCpu));
  }
};

void weights(Input input) {
  const SmallModule module, again;
  nn::load_weights(file_of(input), module);
  nn::save_weights(path_of("copy"), module);
  nn::load_weights(path_of("copy"), again);
  for (size_t i = 0; i < 2; ++i)
    require(same(module.parameters()[i].var.value(), again.parameters()[i].var.value()), "weights are read again");
}

// The state that a rank saved, copied to one tensor of each type that optimizers keep.
void checkpoint_state(Input input) {
  constexpr int64_t kNumel = 64;
  const checkpoint::SavedState saved(map_safetensors(file_of(input)), kNumel);
  const auto copy = [&](const char* name, int64_t begin, int64_t numel, DType dtype) {
    const Tensor values({numel}, dtype, kCpu);
    checkpoint::copy_state(
        {{.name = name, .begin = begin, .values = values, .replicated = false, .bits = 32 * numel}},
        {0}, [&](int) -> const auto& { return saved; });
  };
  for (const auto& [name, pieces] : saved.all())
    for (const auto& piece : pieces)
      require(piece.begin >= 0 && piece.end >= piece.begin, "pieces have no negative size");
  copy("optimizer/m", 0, kNumel, DType::f32);
  copy("exchange/error", 5, 40, DType::u8);
  copy("optimizer/mask", 0, 2, DType::u32);
}

// The index of a model whose only file is a.safetensors, with the tensor x.
void index(Input input) {
  const std::string path = file_of(input, "model.safetensors.index.json");
  for (const auto& [name, file] : parse_safetensors_index(std::string(input.text()), path))
    require(file.find('/') == std::string::npos, "the files of an index are in its folder");
  const Tensor x({2}, DType::f32, kCpu);
  save_safetensors(path_of("a.safetensors"), {{"x", x}});
  const Tensors tensors = map_weights(path);
  require(tensors.empty() || same(tensors, {{"x", x}}), "the index has the tensors of its files");
}

void manifest(Input input) {
  const std::string own = R"({"version": 3, "parameters": 64, "methods": ["sgdm", "dense"]})";
  const checkpoint::Manifest manifest =
      checkpoint::parse_manifest(std::string(input.text()), "step-1/manifest.json", own);
  const Topology& topology = manifest.topology;
  require(topology.nodes >= 1 && topology.world() >= topology.nodes, "a manifest has workers");
  for (const checkpoint::Digest& file : manifest.files) {
    require(file.bytes >= 0, "files have no negative size");
    require(manifest.find(file.name)->xxh3_128 == file.xxh3_128, "files are found by name");
  }
}

// The first byte chooses the methods. The input is the file of the only rank; checksums match.
void checkpoint(Input input) {
  static const std::pair<OptimizerConfig, ExchangeConfig> kMethods[] = {
      {"adamw", "loco"},
      {"birder", "dense"},
      {OptimizerConfig("one_bit_adam", R"({"warmup_steps": 3})"), "dense"},
      {OptimizerConfig("zero_one_adam", R"({"warmup_steps": 3, "intervals": "doubling", "doubling_steps": 2})"),
       "dense"},
      {"sgdm", "topk"},
      {"lamb", "powersgd"}};
  const auto& [optimizer, exchange] = kMethods[input.byte() % std::size(kMethods)];
  const std::string step = path_of("step-1"), model = checkpoint::model_file(0, 1), rank = checkpoint::rank_file(0);
  std::filesystem::create_directory(step);
  run_local({1, 1}, [&, &optimizer = optimizer, &exchange = exchange](Communicator& comm) {
    const Tensor x = Tensor::zeros({64}, DType::f32);
    DataParallel replica({{"x", Var(x, true)}}, comm, {.optimizer = optimizer, .exchange = exchange});
    save_safetensors(step + "/" + model, {{"x", x}});
    file_of(input, "step-1/" + rank);
    std::string text = checkpoint::manifest_of(replica, comm);
    text.back() = ',';
    const char* separator = "\"files\":{";
    for (const std::string& name : {model, rank}) {
      const checkpoint::Digest digest = checkpoint::digest_of(step, name);
      text += detail::concat(separator, '"', name, "\":{\"bytes\":", digest.bytes, ",\"xxh3_128\":\"", digest.xxh3_128,
                             "\"}");
      separator = ",";
    }
    std::ofstream(step + "/" + checkpoint::kManifest) << text << "}}";
    CheckpointExtras extras{.tensors = {{"buffer/mean", Tensor::zeros({2}, DType::f32)}}};
    load_checkpoint(step, replica, comm, extras);
    require(replica.steps() >= 0 && replica.skipped() >= 0, "steps are counted from 0");
  });
}

}  // namespace

std::vector<Target> tensor_targets() {
  return {{"safetensors", safetensors}, {"weights", weights}, {"checkpoint_state", checkpoint_state},
          {"checkpoint", checkpoint},   {"index", index},     {"manifest", manifest}};
}

}  // namespace godwit::fuzz
