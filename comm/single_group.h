// SingleGroup: a group of one rank. Its collectives copy.
#pragma once
#include <memory>

#include "comm/group.h"

namespace godwit {

// The group of a run with one rank, or of a rank that works alone.
class SingleGroup : public Group {
 public:
  SingleGroup()
      : Group(0, {Link::intra}, std::make_shared<CommStats>(), std::make_shared<SingleRunControl>()) {}
  void check_failure(std::string_view) override {}

 protected:
  void do_all_reduce(const Tensor&, Reduce, std::string_view) override {}
  void do_reduce_scatter(const Tensor& in, const Tensor& out, Reduce, std::string_view) override { out.copy_from(in); }
  void do_all_gather(const Tensor& in, const Tensor& out, std::string_view) override { out.copy_from(in); }
  void do_all_to_all(const Tensor& in, const Tensor& out, std::string_view) override { out.copy_from(in); }
  void do_broadcast(const Tensor&, int, std::string_view) override {}
  void do_barrier(std::string_view) override {}
};

}  // namespace godwit
