#include "apps/config/consistency.h"

#include <algorithm>
#include <bit>
#include <set>

#include "comm/host_tensor.h"
#include "engine/hash.h"

namespace godwit::apps {

void check_same_config(Group& group, const Program& program, const CommonConfig& config) {
  std::vector<std::string> of_the_host = program.of_the_host;
  of_the_host.insert(of_the_host.end(), {"init_weights", "run_dir", "threads"});
  std::vector<std::string> keys;
  std::vector<int64_t> hashes;
  for (const Setting& setting : program.settings) {
    if (std::find(of_the_host.begin(), of_the_host.end(), setting.path) != of_the_host.end()) continue;
    Hash hash;
    hash.add(value_text(config, setting));
    keys.push_back(setting.path);
    hashes.push_back(std::bit_cast<int64_t>(hash.value()));
  }
  const int64_t count = static_cast<int64_t>(keys.size());
  const Tensor all({group.size() * count}, DType::i64, kCpu);
  group.all_gather(on_host(hashes), all, "agree");
  std::set<int> ranks;
  std::string differing;
  for (int64_t key = 0; key < count; ++key) {
    bool differs = false;
    for (int rank = 1; rank < group.size(); ++rank)
      if (all.data<int64_t>()[rank * count + key] != all.data<int64_t>()[key]) {
        ranks.insert(rank);
        differs = true;
      }
    if (differs) differing.append(differing.empty() ? "" : ", ").append(keys[static_cast<size_t>(key)]);
  }
  std::string names;
  for (int rank : ranks) names.append(names.empty() ? "" : ", ").append(std::to_string(rank));
  check(differing.empty(), "the configuration differs between ranks: ", differing, " on rank ", names,
        " is not what rank 0 has; start all with the same command line");
}

}  // namespace godwit::apps
