// MpiGroup: a group whose ranks are processes. Collectives exchange pieces of host memory.
#pragma once
#include "comm/transport/round_choice.h"
#include "comm/transport/transfer_mpi.h"

namespace godwit {

// The RunControl of a rank of run_mpi().
std::shared_ptr<RunControl> mpi_run_control(std::shared_ptr<MpiWorld> world, int rank);

class MpiGroup : public Group {
 public:
  MpiGroup(MpiMembers members, std::vector<Link> links, std::shared_ptr<CommStats> stats,
           std::shared_ptr<RunControl> control);
  void check_failure(std::string_view phase) override;

 protected:
  void do_all_reduce(const Tensor& x, Reduce op, std::string_view phase) override;
  void do_reduce_scatter(const Tensor& in, const Tensor& out, Reduce op, std::string_view phase) override;
  void do_all_gather(const Tensor& in, const Tensor& out, std::string_view phase) override;
  void do_all_to_all(const Tensor& in, const Tensor& out, std::string_view phase) override;
  void do_broadcast(const Tensor& x, int root, std::string_view phase) override;
  void do_barrier(std::string_view phase) override;

 private:
  class Parts;
  static constexpr int64_t kDepth = Transfer::kInFlight;  // rows in flight between two neighbors in a ring or chain
  int next() const { return (rank() + 1) % size(); }
  int previous() const { return (rank() + size() - 1) % size(); }
  void queue_gather(Transfer& transfer, const Parts& parts, int64_t row) const;  // sends this rank's part to all
  void gather(const CollectiveCall& call, const Tensor& in, const Tensor& out);
  bool fits_rounds(int64_t bytes) const { return size() / 2 * bytes <= Transfer::kFew; }  // bytes: size of a part
  void gather_in_rounds(const CollectiveCall& call, const Tensor& out);
  void ring_gather(const CollectiveCall& call, const Tensor& out);
  void chain_all_reduce(const CollectiveCall& call, const Tensor& x);
  template <class F>
  void reduce_own_part(const CollectiveCall& call, const Tensor& in, std::byte* out, F&& summed);

  MpiMembers members_;
  bool between_nodes_;  // whether every rank is on a different node
  RoundChoice rounds_;
};

}  // namespace godwit
