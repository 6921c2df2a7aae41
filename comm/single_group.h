// SingleGroup: a group of one rank. Its collectives copy.
#pragma once
#include <memory>
#include <string>

#include "comm/group.h"

namespace godwit {

// may_continue(false) returns true, also after a stop.
class SingleGroup : public Group {
 public:
  SingleGroup() : Group(0, {Link::intra}, std::make_shared<CommStats>()) {}
  void abort(const std::string&) override {}
  void check_failure(std::string_view) override {}
  std::shared_ptr<void> busy() override { return nullptr; }
  std::chrono::steady_clock::time_point last_busy() override { return {}; }
  bool may_continue(bool stop) override { return !stop; }
  bool stop_requested(bool stop) override { return stop_ = stop_ || stop; }
  void forget_stop() override {}

 protected:
  void do_all_reduce(const Tensor&, Reduce, std::string_view) override {}
  void do_reduce_scatter(const Tensor& in, const Tensor& out, Reduce, std::string_view) override { out.copy_from(in); }
  void do_all_gather(const Tensor& in, const Tensor& out, std::string_view) override { out.copy_from(in); }
  void do_all_to_all(const Tensor& in, const Tensor& out, std::string_view) override { out.copy_from(in); }
  void do_broadcast(const Tensor&, int, std::string_view) override {}
  void do_barrier(std::string_view) override {}

 private:
  bool stop_ = false;
};

}  // namespace godwit
