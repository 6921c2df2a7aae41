// CommStats: bytes a rank sent to others, calls it made and the time they took, per phase and link level.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "comm/topology.h"

namespace godwit {

struct CommCount {
  int64_t bytes_intra = 0, bytes_inter = 0;  // payload sent to ranks of this node, of other nodes
  int64_t calls = 0;
  double seconds = 0;  // in these calls, waiting for the others included
};

// Thread-safe. Payload only: headers and barriers count nothing.
class CommStats {
 public:
  void add(std::string_view phase, int64_t bytes_intra, int64_t bytes_inter);
  void add_time(std::string_view phase, double seconds);  // of a call that add() counted
  CommCount phase(std::string_view name) const;  // zeros for a phase that never ran
  std::map<std::string, CommCount> phases() const;
  CommCount total() const;
  void reset();

 private:
  mutable std::mutex mutex_;
  std::map<std::string, CommCount, std::less<>> phases_;
};

}  // namespace godwit
