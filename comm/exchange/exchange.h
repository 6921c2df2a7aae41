// Exchange: replaces a bucket's gradient by its mean over all ranks, exact or compressed. Gradient-based optimizers
// work with any of them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "comm/parallel/bucket.h"
#include "comm/group.h"
#include "comm/state_tensor.h"

namespace godwit {

// Options of all exchanges; exchange_keys() lists the fields that an exchange reads. Field names are the configuration
// keys.
struct ExchangeConfig {
  std::string name = "dense";
  std::string wire = "f32";             // dense, hierarchical: f32, bf16 or f16; dense also int8
  // zero1: every rank receives the whole mean but keeps optimizer state for its shard only and updates that. zero2: it
  // receives only its shard's mean. The updated parameters are then all-gathered as parameter_wire: f32, bf16 or int8.
  std::string sharding = "none";
  std::string parameter_wire = "f32";
  int64_t block_size = 1024;            // values per scale, within a parameter; 0: one block per parameter
  std::string reply = "f32";            // second phase: f32 or coded means, or none to all-gather the messages
  std::string error_feedback = "none";  // compensates compression error: both, worker, server, none
  int64_t levels = 7;                   // qsgd: positive levels; as many negative ones
  double clip_sigma = 2.5;              // terngrad: in root mean squares of a block; 0: no clipping
  double density = 0.01;                // topk, randomk, ef21: fraction of a block's values to send
  int64_t rank = 4;                     // powersgd: rank of the approximation
  std::string compressor = "topk";      // ef21: topk or one_bit
  // loco, loco_zeropp:
  int64_t bits = 4;                       // per code: 1, 4 or 8
  std::string scale = "auto";             // s: a number such as 2^19, or auto: one per block_size values and step
  double error_scale = 4;                 // s_e in units of s
  std::string error_rounding = "random";  // of the stored 8-bit error: random or nearest
  double error_gain_new = 1;              // beta: weight of the new error; the old error has 1 - beta
  int64_t reset_every = 512;              // T_c: number of steps after which the error is reset; 0: never
  double clip_element = 0;                // limit of |g| per value; 0: no limit
  // With a fixed scale and more than one bit: limit for the fraction of saturated codes among all nonzero codes this
  // worker has sent since the start. Checked after each step; mean() throws above it.
  double saturation_limit = 0.5;
  std::string sign_scale = "l1_mean";   // ef_signsgd: scale of a block's signs: l1_mean or l2_rms
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  // Collective. Replaces bucket.grad by its mean, bit-identical on all ranks. Under zero2 only the rank's shard holds
  // the mean; the rest is unspecified. `step` counts from 1.
  virtual void mean(Bucket& bucket, Communicator& comm, int64_t step) = 0;
  virtual std::vector<StatePart> state() const { return {}; }  // for checkpoints
  // Collective: a line for the end of the run that summarizes all ranks, or "" if there is nothing to report.
  virtual std::string summary(Group& /*world*/) const { return {}; }
};

// Creates an exchange. "dense": one all-reduce over the world. "hierarchical": reduce-scatter within the node,
// all-reduce of the shards between nodes, all-gather within the node. Other names: docs/methods/exchanges.md.
// `wire` is the type of data on the network: f32, bf16 or f16; for hierarchical between nodes only. 16 bits halve the
// bytes: an all-to-all of rounded parts, which their owners add in float32, then an all-gather of the means, rounded
// once; bit-identical on all ranks. A gradient that overflows float16 throws. Dense int8: blocks of 1024 values, a
// float32 scale each.
// Throws for an unknown name or an invalid value. `seed` keys stochastic rounding. References are used only during the
// call.
std::unique_ptr<Exchange> make_exchange(const ExchangeConfig& config, const Buckets& buckets, const Communicator& comm,
                                        uint64_t seed);
std::vector<std::string> exchange_names();
std::vector<std::string> exchange_keys(const std::string& name);
// The defaults of an exchange, from its paper if that gives them; throws for an unknown name.
ExchangeConfig exchange_defaults(const std::string& name);
std::vector<std::string> wire_names();
std::vector<std::string> reply_names();
std::vector<std::string> feedback_names();
std::vector<std::string> compressor_names();
std::vector<std::string> error_rounding_names();
// Throws for unknown names, and if the exchange does not support the sharding.
void check_sharding(const ExchangeConfig& config);
bool shards_are_blocks(const ExchangeConfig& config);  // whether shards must consist of whole blocks of block_size

}  // namespace godwit
