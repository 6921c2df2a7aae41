#include "apps/train/memory_limit.h"

#include <unistd.h>

#include <algorithm>

#include "apps/report/progress.h"
#include "engine/check.h"
#include "engine/context.h"
#include "engine/process_limits.h"

namespace godwit::apps {

int64_t host_memory() {
  const int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::min(bytes, control_group_limits().memory.value_or(bytes));
}

void check_host_memory(const CommonConfig& config, const Communicator& comm, const std::string& model, int64_t numel,
                       int64_t available) {
  if (context().device.is_cuda()) return;
  const Topology& all = comm.topology;
  const Sharding sharding = config.exchange.sharding;
  const int workers = uses_mpi(config) ? all.workers_per_node : all.world();  // on this host
  const int shards = sharding == Sharding::hybrid ? all.workers_per_node : all.world();
  const double values = 4.0 * static_cast<double>(numel);  // bytes
  const double worker =
      values / (shards_parameters(sharding) ? shards : 1) + values / (shards_gradients(sharding) ? shards : 1);
  check(worker * workers <= static_cast<double>(available), model, ": ", numel,
        " parameters with their gradients take ", human_bytes(worker * workers), " for ", workers,
        workers == 1 ? " worker" : " workers", ", and this machine has ", human_bytes(static_cast<double>(available)),
        " of memory; choose a smaller model, ",
        shards_parameters(sharding) ? "or more machines"
                                    : "or divide the parameters among the workers of several machines "
                                      "(--set exchange.sharding=zero3)");
}

void check_host_memory_of_parameters(const std::string& model, int64_t numel, int64_t available) {
  if (context().device.is_cuda()) return;
  const double values = 4.0 * static_cast<double>(numel);  // bytes
  check(values <= static_cast<double>(available), model, ": ", numel, " parameters take ", human_bytes(values),
        ", and this machine has ", human_bytes(static_cast<double>(available)), " of memory; choose a smaller model");
}

}  // namespace godwit::apps
