#include "engine/process_limits.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <vector>
#ifdef _OPENMP
#include <omp.h>
#endif

namespace godwit {
namespace {

// The folders of the group that controls `controller` for this process, and of its parents. Version 2 has one group for
// all controllers, named "". In a container, only the last folder may exist: it is the container's own group.
std::vector<std::string> group_folders(const std::string& root, const std::string& controller,
                                       const std::string& mount) {
  std::ifstream in(root + "/proc/self/cgroup");
  std::string wanted(",");
  wanted.append(controller).append(",");
  std::filesystem::path group;
  for (std::string line; std::getline(in, line);) {  // "4:cpu,cpuacct:/path" or, in version 2, "0::/path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string controllers(",");
    controllers.append(line, first + 1, second - first - 1).append(",");
    if (controllers.find(wanted) != std::string::npos) group = line.substr(second + 1);
  }
  std::vector<std::string> folders;
  for (; group.has_relative_path(); group = group.parent_path())
    folders.push_back(root + "/sys/fs/cgroup" + mount + group.string());
  folders.push_back(root + "/sys/fs/cgroup" + mount);
  return folders;
}

template <class T>
void lower(std::optional<T>& limit, T value) {
  if (value > 0) limit = std::min(value, limit.value_or(value));
}

// The number in a file; 0 without a number, such as "max".
double number_in(const std::string& path) {
  std::ifstream in(path);
  double number = 0;
  return in >> number ? number : 0;
}

}  // namespace

ControlGroupLimits control_group_limits(const std::string& root) {
  ControlGroupLimits limits;
  for (const char* mount : {"", "/unified"})
    for (const std::string& folder : group_folders(root, "", mount)) {
      std::ifstream cpu(folder + "/cpu.max");  // "150000 100000" or "max 100000", in microseconds
      double time = 0, period = 0;
      if (cpu >> time >> period && period > 0) lower(limits.cpus, time / period);
      lower(limits.memory, static_cast<int64_t>(number_in(folder + "/memory.max")));
    }
  for (const std::string& folder : group_folders(root, "cpu", "/cpu"))
    if (const double period = number_in(folder + "/cpu.cfs_period_us"); period > 0)
      lower(limits.cpus, number_in(folder + "/cpu.cfs_quota_us") / period);  // -1: no limit
  for (const std::string& folder : group_folders(root, "memory", "/memory"))
    if (const double bytes = number_in(folder + "/memory.limit_in_bytes"); bytes < 1e18)  // above: no limit
      lower(limits.memory, static_cast<int64_t>(bytes));
  return limits;
}

int within_cpu_limit(int cores) {
  static const double limit = std::ceil(control_group_limits().cpus.value_or(1e9));
  return static_cast<int>(std::min<double>(cores, limit));
}

bool threads_are_bound() {
#ifdef _OPENMP
  return omp_get_proc_bind() != omp_proc_bind_false;
#else
  return false;
#endif
}

}  // namespace godwit
