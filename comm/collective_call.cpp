#include "comm/collective_call.h"

#include <array>

namespace godwit {
namespace {

const char* name_of(Collective collective) {
  constexpr std::array names{"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "barrier"};
  return names[static_cast<size_t>(collective)];
}

std::string describe(const CollectiveCall& call) {
  std::string text = std::string(name_of(call.collective)) + " in phase '" + std::string(call.phase) + "'";
  if (call.collective == Collective::barrier) return text;
  text += detail::concat(" of ", call.bytes, " bytes ", call.dtype);
  if (call.device.is_cuda()) text += detail::concat(" on ", call.device);
  if (call.collective == Collective::all_reduce || call.collective == Collective::reduce_scatter)
    text += call.reduce == Reduce::mean ? " (mean)" : " (sum)";
  if (call.collective == Collective::broadcast) text += detail::concat(" from ", call.root);
  return text;
}

}  // namespace

bool same(const CollectiveCall& a, const CollectiveCall& b) {
  return a.collective == b.collective && a.phase == b.phase && a.dtype == b.dtype && a.reduce == b.reduce &&
         a.root == b.root && a.bytes == b.bytes && a.device.kind == b.device.kind;
}

std::string describe_mismatch(int rank_a, const CollectiveCall& a, int rank_b, const CollectiveCall& b) {
  return detail::concat("ranks disagree: rank ", rank_a, " calls ", describe(a), ", rank ", rank_b, " calls ",
                        describe(b), "; all ranks must make the same calls in the same order");
}

}  // namespace godwit
