// ZeRO-1 and ZeRO-2: each rank owns a shard of every bucket, keeps optimizer state for it only, and updates it. The
// updated shards are then all-gathered.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/compress/block_codes.h"
#include "comm/parallel/bucket.h"
#include "comm/group.h"
#include "comm/state_tensor.h"

namespace godwit {

enum class Sharding { none, zero1, zero2 };  // nothing; optimizer state; optimizer state and gradients
inline std::vector<std::string> choices_of(Sharding) { return {"none", "zero1", "zero2"}; }
enum class ParameterWire { f32, bf16, int8 };  // float32, bfloat16, or 8-bit blocks
inline std::vector<std::string> choices_of(ParameterWire) { return {"f32", "bf16", "int8"}; }

// Sets bucket.shards and bucket.owned; call before creating optimizers or exchanges for the buckets. Padded sizes must
// be multiples of the number of ranks. With `block_size`, shards are as even as whole blocks of so many values of a
// parameter allow (0: whole parameters). Without it, each has padded / ranks elements; the last ones may have fewer.
void shard(Buckets& buckets, const Communicator& comm, std::optional<int64_t> block_size);

std::vector<Segment> even_shards(const Bucket& bucket, int ranks);  // [ranks], padding excluded

// Copies the shards of x [padded] to equal parts [ranks · longest shard], zero-padded, for all-to-all or
// reduce-scatter. Returns x itself if its shards already have this layout.
Tensor shards_as_parts(const Bucket& bucket, const Tensor& x);
// Collective: writes the mean of bucket.grad over all ranks to each rank's own shard. Other elements are unchanged.
void mean_to_owners(Bucket& bucket, Group& world, std::string_view phase);
// Collective: every rank receives all shards of x [padded]. Messages have the size of the longest shard.
void all_gather_shards(const Bucket& bucket, const Tensor& x, Group& world, std::string_view phase);

// All-gathers updated shards in float32, bfloat16 or 8-bit blocks. Below float32, every rank, the owner included,
// computes with the rounded values; the owner keeps full-precision master weights and updates these.
class ShardedParameters {
 public:
  // The buckets hold identical initial values on all ranks; the constructor rounds them as the wire would. int8 has one
  // scale per block of `block_size` values of a parameter, so shards must consist of whole blocks.
  ShardedParameters(Buckets& buckets, ParameterWire wire, int64_t block_size);

  void before_update(Bucket& bucket) const;  // copies the master weights to this rank's shard
  void after_update(Bucket& bucket, Group& world) const;  // collective: saves the masters, all-gathers
  // Collective: calls f while the buckets hold the master weights everywhere. f may modify them, identically on all
  // ranks.
  void with_master_weights(Buckets& buckets, Group& world, const std::function<void()>& f) const;
  std::vector<StateTensor> state() const { return masters_; }  // "master"; empty for float32

 private:
  // int8 blocks of one bucket: of all shards, placed in the gathered messages; of this rank's shard, in its own
  // message.
  struct Blocks {
    BlockTable<CodedBlock> all = {}, own = {};
    int64_t words = 0;  // per message
  };

  void add_blocks(const Bucket& bucket, int64_t block_size);
  const Blocks& blocks_of(const Bucket& bucket) const;
  Tensor encode(const Bucket& bucket, const BlockTable<CodedBlock>& blocks, int64_t words) const;
  void decode(const Bucket& bucket, const Tensor& messages) const;
  void keep_and_round(Bucket& bucket) const;
  const Tensor& master(const Bucket& bucket) const;

  ParameterWire wire_;
  std::unique_ptr<Compressor> compressor_;
  std::vector<Blocks> blocks_;
  std::vector<StateTensor> masters_;  // one per bucket
};


}  // namespace godwit
