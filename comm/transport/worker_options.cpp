#include "comm/transport/worker_options.h"

#include "comm/transport/launcher.h"
#include "comm/transport/mpi.h"
#include "engine/device.h"

namespace godwit {

bool uses_mpi(const WorkerOptions& options) {
  return options.transport == "mpi" || (options.transport == "auto" && under_launcher());
}

void WorkerOptions::describe_topology(OptionList& list) {
  list.add("nodes", nodes, "number of nodes", {1, 1024}).with_flag("--nodes");
  list.add("workers_per_node", workers_per_node, "number of workers per node", {1, 1024})
      .with_flag("--workers-per-node");
  list.add("transport", transport, "transport between workers; auto: mpi under mpirun and srun, otherwise local")
      .with_choices({"auto", "local", "mpi"});
  list.add("timeout_s", timeout_s, "seconds that a worker waits for other workers", {0.001, 1e6});
}

void WorkerOptions::describe_devices(OptionList& list) {
  list.add("threads", threads, "threads per worker; 0: cores / workers", {0, 1024})
      .with_flag("--threads")
      .differs_by_host();
  list.add("device", device,
           "device of the workers; cuda: a GPU for each worker; cuda:N: GPU N for all workers of a host")
      .with_flag("--device", "DEVICE")
      .with_choices({"cpu", "cuda", "auto"})
      .check_text = check_device;
  list.add("share_gpu", share_gpu, "device cuda: let workers share GPUs if there are too few");
  list.add("nccl", nccl, "use NCCL between processes that have a GPU each");
}

void WorkerOptions::resolve(bool nodes_given, bool workers_given) {
  if (device == "auto") device = cuda_devices() > 0 ? "cuda" : "cpu";
  const std::optional<Launcher> launched = launcher();
  if (!uses_mpi(*this)) {
    if (launched && launched->world > 1)
      fail("transport local: ", launched->name, " started ", launched->world,
           " processes, which would each train by themselves; start a single process, or set transport=auto");
    const int64_t workers = static_cast<int64_t>(nodes) * workers_per_node;
    check(workers <= 1024, "--nodes ", nodes, " --workers-per-node ", workers_per_node, ": ", workers,
          " workers, but one process holds at most 1024");
    return;
  }
  check(launched.has_value(), "transport mpi: no launcher started this process; start it with mpirun or srun");
  check(mpi_built(), launched->name, " started this process, but this build has no MPI: install it (Debian: ",
        "libopenmpi-dev, openmpi-bin) and build again");
  const Topology given{nodes_given ? nodes : 0, workers_given ? workers_per_node : 0};
  const Topology topology = fit_topology(given, launched->world);
  nodes = topology.nodes, workers_per_node = topology.workers_per_node;
}

bool WorkerOptions::fits_launcher() const {
  const std::optional<Launcher> launched = launcher();
  return launched && launched->world == int64_t{nodes} * workers_per_node;
}

}  // namespace godwit
