// hierarchical: reduce-scatter within the node, all-reduce of the shards between nodes, all-gather within the node.
#pragma once
#include <string>
#include <vector>

#include "comm/exchange/method.h"

namespace godwit {

struct HierarchicalOptions {
  enum class Wire { f32, bf16, f16, automatic };  // types of data between nodes; automatic: as in DenseOptions
  Wire wire = Wire::f32;  // type of data between nodes; within a node, the gradient's type is used

  void describe(OptionList& list);
};
inline std::vector<std::string> choices_of(HierarchicalOptions::Wire) { return {"f32", "bf16", "f16", "auto"}; }

}  // namespace godwit
