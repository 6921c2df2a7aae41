// Limits of this process: control groups (cgroups), which containers and batch systems set, and bound threads.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace godwit {

// Limits of the control groups of a process; empty without a limit.
struct ControlGroupLimits {
  std::optional<double> cpus;     // seconds of CPU time per second
  std::optional<int64_t> memory;  // bytes
};

// The lowest limits among the groups of this process and their parents, for versions 1 and 2 of control groups. Files
// that cannot be read are ignored. `root`: path before /proc/self/cgroup and /sys/fs/cgroup; empty for this system.
ControlGroupLimits control_group_limits(const std::string& root = "");

// `cores`, or the CPU limit of this process if it is lower, rounded up. The limit is read once.
int within_cpu_limit(int cores);

bool threads_are_bound();  // whether OpenMP binds threads to cores, as with OMP_PROC_BIND=true

}  // namespace godwit
