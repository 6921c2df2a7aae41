// CommStats: bytes sent by a rank, number of calls and their duration, per phase and link level.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "comm/topology.h"

namespace godwit {

// Counts of one phase.
struct CommCount {
  int64_t bytes_intra = 0, bytes_inter = 0;  // payload sent to ranks on the same node, and on other nodes
  int64_t calls = 0;                         // number of calls
  double seconds = 0;                        // time in these calls, including waiting for peers
};

// Thread-safe. Counts payload only: no headers, no barriers.
class CommStats {
 public:
  void add(std::string_view phase, int64_t bytes_intra, int64_t bytes_inter);  // counts one call
  void add_time(std::string_view phase, double seconds);  // must follow add(); ignored for an unknown phase
  CommCount phase(std::string_view name) const;  // zeros for a phase that never ran
  std::map<std::string, CommCount> phases() const;  // counts of every phase, by name
  CommCount total() const;  // sums over all phases
  void reset();  // removes all phases
  void restore(const std::map<std::string, CommCount>& phases);  // replaces the counts by an earlier result of phases()

 private:
  mutable std::mutex mutex_;
  std::map<std::string, CommCount, std::less<>> phases_;
};

}  // namespace godwit
