#include "apps/config/pick_sharding.h"

#include "engine/check.h"
#include "optim/data_parallel.h"

namespace godwit::apps {
namespace {

// Why the run cannot use hybrid sharding; empty if it can.
std::string obstacle(const CommonConfig& config) {
  if (config.cuda_graph) return "cuda_graph cannot follow gradients that move in memory";
  DataParallelOptions options{.optimizer = config.optimizer, .exchange = config.exchange};
  options.exchange.sharding = Sharding::hybrid;
  options.clip_norm = config.clip.norm;
  try {
    check_sharding(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

void pick_sharding(CommonConfig& config) {
  if (config.exchange.sharding != Sharding::automatic || config.nodes == 0) return;
  config.exchange.sharding = config.exchange.method().sharding;
  if (config.nodes == 1 || config.workers_per_node == 1) return;
  const std::string why_not = obstacle(config);
  if (why_not.empty()) {
    config.exchange.sharding = Sharding::hybrid;
    config.notices.push_back(detail::concat("exchange.sharding=auto picks hybrid: the ", config.workers_per_node,
                                            " workers of each node divide the parameters"));
  } else {
    config.notices.push_back("exchange.sharding=auto picks " + config.exchange.text("sharding") +
                             " instead of hybrid: " + why_not);
  }
}

}  // namespace godwit::apps
