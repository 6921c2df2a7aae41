#include <algorithm>
#include <set>

#include "comm/consistency.h"
#include "comm/gather.h"
#include "engine/dtype.h"
#include "engine/safetensors.h"
#include "optim/checkpoint_files.h"
#include "optim/saved_state.h"

namespace godwit {

using namespace checkpoint;

namespace {

const std::string kTensor = "tensor/";  // prefix of the names of CheckpointExtras::tensors, optional and own

// The files of the model that the manifest lists.
std::vector<std::string> model_files(const Manifest& manifest) {
  std::vector<std::string> names;
  for (const Digest& file : manifest.files)
    if (file.name.starts_with("model") && file.name.ends_with(".safetensors")) names.push_back(file.name);
  if (names.empty()) names.push_back(model_file(0, 1));
  return names;
}

// Checks the files of all ranks, the model and the files of the description, each on one rank.
void check_files(const std::string& folder, const Manifest& manifest, Group& world) {
  std::vector<std::string> names;
  for (int rank = 0; rank < manifest.topology.world(); ++rank) names.push_back(rank_file(rank));
  std::set<std::string> others;
  for (const std::string& name : model_files(manifest)) others.insert(name);
  for (const Digest& file : manifest.files) others.insert(file.name);
  for (const std::string& name : names) others.erase(name);
  names.insert(names.end(), others.begin(), others.end());
  on_all(world, [&] {
    for (size_t i = 0; i < names.size(); ++i)
      if (static_cast<int>(i) % world.size() == world.rank()) check_file(folder, names[i], manifest);
  });
}

// `more`: tensors of the files that are not parameters.
void load_parameters(const std::string& folder, const Manifest& manifest, DataParallel& replica, Communicator& comm,
                     const std::map<std::string, Tensor>& more) {
  const std::vector<std::string> files = model_files(manifest);
  const auto layout_of = [&](const Slot& slot) {
    return manifest.file_layout ? slot.layout : FileLayout::as_in_memory;
  };
  std::map<std::string, Tensor> saved;
  on_all(*comm.world, [&] {
    for (const std::string& file : files) saved.merge(map_safetensors(folder + "/" + file));
    for (const auto& [name, values] : more) saved.erase(name);
    const std::string path = folder + "/" + (files.size() == 1 ? files[0] : kIndex);
    size_t used = 0;
    for (const Bucket& bucket : replica.buckets())
      for (const Slot& slot : bucket.slots) {
        const auto found = saved.find(slot.name);
        check(found != saved.end(), path, ": has no parameter '", slot.name, "'; resume with the same model");
        const Tensor& values = found->second;
        const Shape shape = file_shape(slot.var.shape(), layout_of(slot));
        check(values.shape() == shape && values.dtype() == bucket.param.dtype(), path, ": ", slot.name, " is ",
              values.shape(), " ", values.dtype(), ", but the model has ", shape, " ", bucket.param.dtype());
        ++used;
      }
    check(used == saved.size(), path, ": has ", saved.size(), " parameters, but the model ", used);
  });
  const auto load = [&](Bucket& bucket) {
    const auto busy = comm.world->control()->busy();  // values are read from the files only now
    for (const Slot& slot : bucket.slots)
      bucket.param.range(slot.offset, slot.numel)
          .copy_from(
              from_file_layout(saved.at(slot.name), layout_of(slot)).to(bucket.param.device()).view({slot.numel}));
  };
  replica.for_each_master_bucket(load, /*store=*/true);
}

// Order in which ranks' files are searched: this rank, the ranks of its node, all ranks. If the bucket sizes have
// changed, other ranks have saved some of this rank's values.
std::vector<int> nearest_ranks(const Communicator& comm) {
  std::vector<int> order{comm.rank};
  const int workers = comm.topology.workers_per_node, first = comm.rank / workers * workers;
  for (int rank = first; rank < first + workers; ++rank) order.push_back(rank);
  for (int rank = 0; rank < comm.topology.world(); ++rank) order.push_back(rank);
  return order;
}

// Sets a tensor to the weighted mean of the saved ranks' tensors. Counters are equal on all ranks and are copied.
void load_tensor(const Tensor& values, const std::string& name, const std::string& folder,
                 const std::vector<std::pair<int, std::map<std::string, Tensor>>>& saved,
                 const std::vector<double>& weights) {
  Tensor mean;  // float64
  for (size_t i = 0; i < saved.size(); ++i) {
    const std::string path = folder + "/" + rank_file(saved[i].first);
    const auto found = saved[i].second.find(kTensor + name);
    check(found != saved[i].second.end(), path, ": has no ", name);
    const Tensor& from = found->second;
    check(from.shape() == values.shape() && from.dtype() == values.dtype(), path, ": ", name, " is ", from.shape(), " ",
          from.dtype(), ", expected ", values.shape(), " ", values.dtype());
    if (saved.size() == 1 || (values.dtype() != DType::f32 && values.dtype() != DType::f64))
      return values.copy_from(from.to(values.device()));
    if (i == 0) mean = Tensor(from.shape(), DType::f64, kCpu), mean.zero();
    for (int64_t k = 0; k < from.numel(); ++k) mean.data<double>()[k] += weights[i] * from.item(k);
  }
  values.copy_from(mean.to(values.dtype()).to(values.device()));
}

// "buffer" of "buffer/bn1.running_mean".
std::string first_word(const std::string& name) { return name.substr(0, name.find('/')); }

std::string words(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Names of saved state that no rank of this run has. If the topology has changed, redistribute() reports state tensors.
std::vector<std::string> unused_state(const std::map<std::string, Tensor>& saved, const std::vector<StateTensor>& parts,
                                      const CheckpointExtras& extras, bool same, Group& world) {
  std::vector<std::string> own;
  for (const StateTensor& part : parts) own.push_back(part.name);
  for (const auto* tensors : {&extras.tensors, &extras.optional, &extras.own})
    for (const auto& [name, values] : *tensors) own.push_back(kTensor + name);
  std::set<std::string> known, unused;
  for (const std::vector<std::string>& names : gather_texts(world, own, "checkpoint/unused"))
    known.insert(names.begin(), names.end());
  for (const auto& [key, values] : saved) {
    const bool is_tensor = key.starts_with(kTensor);
    const std::string name = is_tensor ? key : key.substr(0, key.rfind('@'));
    if (known.contains(name) || (!same && !is_tensor)) continue;
    unused.insert(is_tensor ? first_word(name.substr(kTensor.size())) : name);
  }
  return {unused.begin(), unused.end()};
}

// Collective: the names of the exchange's state on any rank.
std::set<std::string> exchange_state(const std::vector<StateTensor>& parts, Group& world) {
  std::vector<std::string> own;
  for (const StateTensor& part : parts)
    if (part.name.starts_with("exchange/")) own.push_back(part.name);
  std::set<std::string> all;
  for (const std::vector<std::string>& names : gather_texts(world, own, "checkpoint/exchange"))
    all.insert(names.begin(), names.end());
  return all;
}

// Throws unless the errors of the exchange, one tensor per bucket, were saved with the same shards.
void check_same_shards(const std::vector<StateTensor>& parts, const SavedState& saved, const std::string& folder) {
  for (const StateTensor& part : parts) {
    if (part.name != "exchange/e") continue;
    const auto is_same = [&](const SavedState::Piece& piece) {
      return piece.begin == part.begin && piece.values.numel() == part.values.numel();
    };
    const std::vector<SavedState::Piece>& pieces = saved.named(part.name);
    check(std::any_of(pieces.begin(), pieces.end(), is_same), folder, ": was saved with other shards; with sharding ",
          "hybrid and a scale per block, resume with the same exchange.block_size, bucket.mib and bucket.first_mib");
  }
}

// Part of load_checkpoint()'s result that describes the tensors of the program.
std::string describe_tensors(const CheckpointExtras& extras) {
  std::set<std::string> averaged, fresh;
  for (const auto& [name, values] : extras.tensors) averaged.insert(first_word(name));
  for (const auto& [name, values] : extras.own) fresh.insert(name);
  return (averaged.empty() ? "" : "; averaged over the workers: " + words(averaged)) +
         (fresh.empty() ? "" : "; begins anew, because the workers have other data: " + words(fresh));
}

// The numbers of the program among the metadata of a rank's file.
std::map<std::string, double> numbers_of(const std::map<std::string, std::string>& metadata, const std::string& path) {
  std::map<std::string, double> numbers;
  for (const auto& [name, text] : metadata)
    if (name.starts_with("number/")) numbers[name.substr(7)] = exact_number(text, path);
  return numbers;
}

std::vector<double> counters_of(const std::map<std::string, std::string>& metadata, const std::string& path) {
  const auto count = std::count_if(metadata.begin(), metadata.end(),
                                   [](const auto& entry) { return entry.first.starts_with("counter/"); });
  std::vector<double> counters;
  for (int64_t i = 0; i < count; ++i) {
    const auto found = metadata.find("counter/" + std::to_string(i));
    check(found != metadata.end(), path, ": has no counter ", i);
    counters.push_back(exact_number(found->second, path));
  }
  return counters;
}

}  // namespace

std::string load_checkpoint(const std::string& folder, DataParallel& replica, Communicator& comm,
                            CheckpointExtras& extras) {
  Group& world = *comm.world;
  replica.check_between_steps("load_checkpoint");
  Manifest manifest;
  on_all(world, [&] { manifest = read_manifest(folder, replica, comm); });
  const Topology& before = manifest.topology;
  const int saved_ranks = before.world();
  const bool same = before.nodes == comm.topology.nodes && before.workers_per_node == comm.topology.workers_per_node;
  check_files(folder, manifest, world);
  load_parameters(folder, manifest, replica, comm, extras.model);

  const int64_t numel = replica.buckets().numel();
  const std::vector<StateTensor> parts = parts_of(replica, extras);
  // With hybrid sharding, state by block is numbered within the shards of a rank. Some ranks have no shard.
  const std::set<std::string> of_exchange =
      replica.sharding() == Sharding::hybrid ? exchange_state(parts, world) : std::set<std::string>();
  const bool by_block = of_exchange.contains("exchange/scale");
  const auto tensors_of = [&](int rank, std::map<std::string, std::string>* numbers = nullptr) {
    return map_safetensors(folder + "/" + rank_file(rank), numbers);
  };
  std::string done;
  if (same) {
    on_all(world, [&] {
      std::map<int, SavedState> saved;
      const auto saved_by = [&](int rank) -> const SavedState& {
        const auto found = saved.find(rank);
        return found != saved.end() ? found->second
                                    : saved.emplace(rank, SavedState(tensors_of(rank), numel)).first->second;
      };
      if (by_block) check_same_shards(parts, saved_by(comm.rank), folder);
      try {
        copy_state(parts, nearest_ranks(comm), saved_by);
      } catch (const Error& error) {
        fail(folder, ": ", error.what());
      }
    });
  } else {
    const auto is_lost = [&](const std::string& name) { return by_block && name.starts_with("exchange/"); };
    std::vector<StateTensor> kept = parts;
    std::erase_if(kept, [&](const StateTensor& part) { return is_lost(part.name); });
    for (const StateTensor& part : parts)  // after a rollback, this rank has errors of later steps
      if (by_block && part.name == "exchange/e") part.values.zero();
    std::vector<SavedState> all;
    on_all(world, [&] {
      for (int rank = 0; rank < saved_ranks; ++rank) {
        std::map<std::string, Tensor> tensors = tensors_of(rank);
        std::erase_if(tensors, [&](const auto& tensor) { return is_lost(tensor.first); });
        all.emplace_back(tensors, numel);
      }
    });
    done = detail::concat("the checkpoint was saved by ", before.nodes, " × ", before.workers_per_node,
                          " workers, this run has ", comm.topology.nodes, " × ", comm.topology.workers_per_node);
    if (const std::string changes = redistribute(kept, all, world); !changes.empty()) done += "; " + changes;
    if (by_block)
      done += "; begins anew, because the scales belong to the shards of the saved run: " + words(of_exchange);
    done += describe_tensors(extras);
  }
  const std::vector<double> weights = same ? std::vector<double>() : weights_of(saved_ranks, world.size(), comm.rank);
  // Tensors of the saved ranks whose mean is loaded, and of rank 0.
  std::vector<std::pair<int, std::map<std::string, Tensor>>> saved, saved_by_0;
  on_all(world, [&] {
    std::map<std::string, std::string> numbers;
    std::vector<double> used;
    for (int rank = 0; rank < saved_ranks; ++rank)
      if (same ? rank == comm.rank : weights[static_cast<size_t>(rank)] > 0) {
        saved.emplace_back(rank, tensors_of(rank, saved.empty() ? &numbers : nullptr));
        used.push_back(same ? 1 : weights[static_cast<size_t>(rank)]);
      }
    for (const auto& [name, values] : extras.tensors) load_tensor(values, name, folder, saved, used);
    // Equal on all ranks. Means of several ranks might differ in the last bit.
    if (!same) saved_by_0.emplace_back(0, tensors_of(0));
    const auto& equal = same ? saved : saved_by_0;
    for (const auto& [name, values] : extras.optional)
      if (equal.front().second.contains(kTensor + name)) load_tensor(values, name, folder, equal, {1});
    if (same)
      for (const auto& [name, values] : extras.own) load_tensor(values, name, folder, saved, used);
    const std::string path = folder + "/" + rank_file(saved.front().first);
    extras.numbers = numbers_of(numbers, path);
    if (!same) numbers.clear(), (void)tensors_of(0, &numbers);  // the same counters on all ranks
    replica.restore(counters_of(numbers, same ? path : folder + "/" + rank_file(0)));
  });
  extras.unused = unused_state(saved.front().second, parts, extras, same, world);
  check_identical(world, static_cast<uint64_t>(replica.steps()), "the step of the checkpoint");
  check_identical(world, replica.value_hash(), "the parameters of the checkpoint");
  replica.check_shared_state(" of the checkpoint", "resume with the optimizer's options of the saved run");
  return done;
}

}  // namespace godwit
