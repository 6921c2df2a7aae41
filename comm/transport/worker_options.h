// Options of the workers of a run.
#pragma once
#include <string>

#include "engine/options.h"

namespace godwit {

// The number of workers of a run, how they start, and where they compute.
struct WorkerOptions {
  int nodes = 1, workers_per_node = 1;  // topology
  std::string transport = "auto";       // local, mpi; auto: mpi under a launcher, otherwise local
  double timeout_s = 60;                // seconds that a worker waits for the other workers
  int threads = 0;                      // threads per worker; 0: cores / workers
  std::string device = "cpu";           // text for parse_device()
  bool share_gpu = false;               // whether workers may share a GPU with device cuda
  bool nccl = true;                     // processes with separate GPUs communicate through NCCL, if the build has it

  void describe_topology(OptionList& list);  // nodes, workers_per_node, transport, timeout_s
  void describe_devices(OptionList& list);   // the other options
  // Replaces the device auto. Under a launcher, nodes and workers_per_node follow from the number of started processes
  // unless they are given. Both are 0 if each host is to be one node. Throws if the options contradict the build or the
  // way in which the process was started.
  void resolve(bool nodes_given, bool workers_given);
  bool fits_launcher() const;  // whether a launcher started one process for each of these workers
};

bool uses_mpi(const WorkerOptions& options);  // workers are processes of a launcher instead of threads

}  // namespace godwit
