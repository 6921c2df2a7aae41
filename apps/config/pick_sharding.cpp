#include "apps/config/pick_sharding.h"

#include "apps/config/saved_config.h"
#include "engine/check.h"
#include "optim/data_parallel.h"

namespace godwit::apps {
namespace {

// Why the run cannot use a kind of sharding; empty if it can.
std::string obstacle(const CommonConfig& config, Sharding sharding) {
  if (config.cuda_graph && shards_gradients(sharding)) return "cuda_graph needs gradients at fixed addresses";
  DataParallelOptions options{.optimizer = config.optimizer, .exchange = config.exchange};
  options.exchange.sharding = sharding;
  options.clip_norm = config.clip.norm;
  try {
    check_sharding(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The sharding of the run that `config` continues; automatic if it continues none.
Sharding saved_sharding(const CommonConfig& config) {
  const std::string name = saved_option(config, "exchange", "sharding");
  if (name.empty()) return Sharding::automatic;
  ExchangeConfig exchange = config.exchange;
  const OptionList list = exchange.list();
  assign(*list.find("sharding"), text_value(name), saved_config_path(config) + ": exchange.sharding");
  return exchange.sharding;
}

}  // namespace

void pick_sharding(CommonConfig& config) {
  if (config.exchange.sharding != Sharding::automatic) return;
  const Sharding usual = config.exchange.method().sharding;
  const bool several = config.nodes != 1 && config.workers_per_node != 1;  // 0: not yet known
  const Sharding saved = saved_sharding(config);
  if (saved != Sharding::automatic && obstacle(config, saved).empty()) {
    config.exchange.sharding = saved;
    if (several || saved != usual)
      config.notices.push_back("exchange.sharding=auto keeps " + config.exchange.text("sharding") +
                               ", the sharding of the saved run");
    return;
  }
  if (config.nodes == 0) return;
  config.exchange.sharding = usual;
  if (!several) return;
  const std::string why_not = obstacle(config, Sharding::hybrid);
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
