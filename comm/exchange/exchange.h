// Exchange: replaces the gradient of a bucket by its mean over all ranks, exact or compressed; gradient optimizers work
// behind any of them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "comm/parallel/bucket.h"
#include "comm/group.h"
#include "comm/state_tensor.h"

namespace godwit {

// One struct for all; exchange_keys() says which fields a method reads. Field names are the configuration keys.
struct ExchangeConfig {
  std::string name = "dense";
  std::string wire = "f32";             // dense, hierarchical: f32, bf16 or f16; dense also int8
  // zero1: every rank gets the whole mean, but keeps optimizer state of its shard alone and updates that; zero2: it gets
  // the mean of its shard alone. Afterwards the parameters are gathered as parameter_wire says: f32, bf16 or int8.
  std::string sharding = "none";
  std::string parameter_wire = "f32";
  int64_t block_size = 1024;            // values that share a scale, within a parameter; 0: each parameter is a block
  std::string reply = "f32";            // how means come back: f32, coded, or none: messages go to everybody
  std::string error_feedback = "none";  // of what coding loses: both, worker, server, none
  int64_t levels = 7;                   // qsgd: of each sign
  double clip_sigma = 2.5;              // terngrad: in root mean squares of a block; 0: not clipped
  double density = 0.01;                // topk, randomk, ef21: part of a block's values that is sent
  int64_t rank = 4;                     // powersgd: of the matrices' approximations
  std::string compressor = "topk";      // ef21: topk or one_bit
  // loco, loco_zeropp:
  int64_t bits = 4;                       // of a code: 1, 4 or 8
  std::string scale = "auto";             // s: a number, as 2^19; auto: one for each block_size values, of every step
  double error_scale = 4;                 // s_e in units of s
  std::string error_rounding = "random";  // of the error to 8 bits: random or nearest
  double error_gain_new = 1;              // beta: weight of the new error, 1 - beta that of the old one
  int64_t reset_every = 512;              // T_c: steps after which the error is dropped; 0: never
  double clip_element = 0;                // largest |g| of a value; 0: not limited
  // With a fixed scale and more than one bit: the largest part that may have saturated, of all values since the
  // start that this worker did not send as 0; checked after each step, and above it mean() throws.
  double saturation_limit = 0.5;
  std::string sign_scale = "l1_mean";   // ef_signsgd: of a block's signs: l1_mean or l2_rms
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  // bucket.grad, in place: on all ranks the same bits; under zero2 what the rank owns of it, the rest is not specified.
  // `step` counts from 1.
  virtual void mean(Bucket& bucket, Communicator& comm, int64_t step) = 0;
  virtual std::vector<StatePart> state() const { return {}; }
  // Collective: a line for the end of a run on all ranks' values, "" when there is nothing to say.
  virtual std::string summary(Group& /*world*/) const { return {}; }
};

// "dense": one all-reduce over the world. "hierarchical": reduce-scatter in the node, all-reduce of the shards between
// nodes, all-gather in the node. `wire` is the type of what crosses the network (hierarchical: between nodes; within a
// node it is the gradients' type): f32, bf16 or f16. In 16 bits a step sends an all-to-all of rounded parts, which
// their owners add in float32, and an all-gather of the means, rounded once: half of float32's bytes, the same bits on
// all ranks. A gradient that overflows float16 throws. "dense" in int8: blocks of 1024 values with a float32 scale.
// The others send compressed gradients: docs/methods/exchanges.md.
// Throws for an unknown name or a value the method cannot use. `seed` drives stochastic quantisers. References are read
// only during the call.
std::unique_ptr<Exchange> make_exchange(const ExchangeConfig& config, const Buckets& buckets, const Communicator& comm,
                                        uint64_t seed);
std::vector<std::string> exchange_names();
std::vector<std::string> exchange_keys(const std::string& name);
// The settings of the method's paper where it has them; throws for an unknown name.
ExchangeConfig exchange_defaults(const std::string& name);
std::vector<std::string> wire_names();
std::vector<std::string> reply_names();
std::vector<std::string> feedback_names();
std::vector<std::string> compressor_names();
std::vector<std::string> error_rounding_names();
// Throws for words that are unknown, and for an exchange and a sharding that do not go together.
void check_sharding(const ExchangeConfig& config);
bool shards_are_blocks(const ExchangeConfig& config);  // whole ones of block_size: some of what is sent has scales

}  // namespace godwit
