#include "apps/train/run_consistency.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <set>

#include "comm/gather.h"
#include "comm/host_tensor.h"
#include "engine/excerpt.h"
#include "engine/hash.h"

namespace godwit::apps {
namespace {

bool same_on_all_ranks(Group& group, const std::vector<std::string>& own) {
  Hash hash;
  for (const std::string& text : own) hash.add(text);
  const Tensor hashes({group.size()}, DType::i64, kCpu);
  group.all_gather(cpu_tensor<int64_t>({std::bit_cast<int64_t>(hash.value())}), hashes, "agree");
  const std::span<int64_t> all = hashes.span<int64_t>();
  return std::adjacent_find(all.begin(), all.end(), std::not_equal_to<>()) == all.end();
}

}  // namespace

void check_same_build(Group& group, const std::string& own) {
  if (same_on_all_ranks(group, {own})) return;
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  const auto builds = gather_texts(group, {own, host}, "agree");
  const auto& first = builds[0];
  for (size_t rank = 1; rank < builds.size(); ++rank)
    check(builds[rank][0] == first[0], "hosts run different builds: rank ", rank, " on host ", builds[rank][1], " has ",
          builds[rank][0], "; rank 0 on host ", first[1], " has ", first[0], "; install the same build on all hosts");
}

void check_same_config(Group& group, const CommonConfig& config) {
  std::vector<std::string> own;  // each option's name, then its value
  for (const Option& option : config.options())
    if (!option.host_specific) own.insert(own.end(), {option.name, value_text(option)});
  if (same_on_all_ranks(group, own)) return;

  const auto texts = gather_texts(group, own, "agree");
  std::vector<std::map<std::string, std::string>> values(texts.size());
  std::set<std::string> names, ranks;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    for (size_t i = 0; i + 1 < texts[rank].size(); i += 2) values[rank][texts[rank][i]] = texts[rank][i + 1];
    for (const auto* some : {&values[0], &values[rank]})
      for (const auto& [name, value] : *some)
        if (values[0][name] != values[rank][name]) names.insert(name), ranks.insert(std::to_string(rank));
  }
  check(names.empty(), "the configuration differs between ranks: ", excerpts({names.begin(), names.end()}, 30),
        " on rank ", excerpts({ranks.begin(), ranks.end()}, 30),
        " differs from rank 0; start all ranks with the same command line and run directory");
}

}  // namespace godwit::apps
