// Sharding: each rank owns a shard of every bucket, keeps optimizer state for it only, and updates it. With ZeRO-1 and
// ZeRO-2 the updated shards are then all-gathered; with ZeRO-3 (parameter_shards.h) when operations read them.
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

// What is sharded: nothing; optimizer state; gradients too; parameters too; the same within each node only. automatic:
// not chosen yet; the training programs replace it by hybrid or none.
enum class Sharding { automatic, none, zero1, zero2, zero3, hybrid };
inline std::vector<std::string> choices_of(Sharding) { return {"auto", "none", "zero1", "zero2", "zero3", "hybrid"}; }
inline bool shards_gradients(Sharding s) { return s >= Sharding::zero2; }   // gradients have memory on demand
inline bool shards_parameters(Sharding s) { return s >= Sharding::zero3; }  // parameters too
// Whether an exchange leaves each mean with its owner.
inline bool means_stay_with_owners(Sharding s) { return s == Sharding::zero2 || s == Sharding::zero3; }
enum class ParameterWire { f32, bf16, int8 };  // float32, bfloat16, or 8-bit blocks
inline std::vector<std::string> choices_of(ParameterWire) { return {"f32", "bf16", "int8"}; }

// Sets bucket.shards and bucket.owned to those of `rank` of `ranks`; call before creating optimizers or exchanges for
// the bucket. Its padded size must be a multiple of `ranks`. With `block_size`, shards are as even as whole blocks of
// so many values of a parameter allow (0: whole parameters). Without it, each has padded / ranks elements; the last
// ones may have fewer.
void shard(Bucket& bucket, int ranks, int rank, std::optional<int64_t> block_size);
void shard(Buckets& buckets, const Communicator& comm, std::optional<int64_t> block_size);  // over comm.world

int64_t longest_shard(const Bucket& bucket);                        // values
bool has_regular_shards(const Bucket& bucket);                      // all begin at multiples of padded / ranks
std::vector<Segment> even_shards(const Bucket& bucket, int ranks);  // [ranks], padding excluded

// Copies the shards of x [padded] to equal parts [ranks · longest shard], zero-padded, for all-to-all or
// reduce-scatter. Returns x itself if its shards already have this layout.
Tensor shards_as_parts(const Bucket& bucket, const Tensor& x);
// Collective: writes the mean of bucket.grad over all ranks to each rank's own shard. Other elements are unchanged.
void mean_to_owners(Bucket& bucket, Group& world, std::string_view phase);
// Collective: writes the mean of bucket.grad over all ranks of `group`, [≥ owned], to `own`, the rank's own shard.
void mean_to_owner(const Bucket& bucket, const Tensor& own, Group& group, std::string_view phase);
// Collective: every rank receives all shards as x [padded]. own: this rank's, [≥ longest shard], zero behind its
// values. Messages have the size of the longest shard.
void all_gather_shards(const Bucket& bucket, const Tensor& own, const Tensor& x, Group& group, std::string_view phase);
// The same; x holds this rank's shard.
void all_gather_shards(const Bucket& bucket, const Tensor& x, Group& world, std::string_view phase);

// All-gathers updated shards in float32, bfloat16 or 8-bit blocks. Below float32, every rank, the owner included,
// computes with the rounded values; the owner keeps full-precision master weights and updates these.
class ShardedParameters {
 public:
  // The buckets hold identical initial values on all ranks; the constructor rounds them as the wire would. int8 has one
  // scale per block of `block_size` values of a parameter, so shards must consist of whole blocks.
  // keeps_masters = false: the caller has the masters and calls gather() only; the buckets are not changed.
  ShardedParameters(Buckets& buckets, ParameterWire wire, int64_t block_size, bool keeps_masters = true);

  void before_update(Bucket& bucket) const;  // copies the master weights to this rank's shard
  void after_update(Bucket& bucket, Group& world) const;  // collective: saves the masters, all-gathers
  // Collective: writes all shards, as the wire rounds them, to x [padded]. own: as all_gather_shards(), not rounded.
  void gather(const Bucket& bucket, const Tensor& own, const Tensor& x, Group& group) const;
  // Collective: calls f while the buckets hold the master weights everywhere. f may modify them, identically on all
  // ranks.
  void with_master_weights(Buckets& buckets, Group& world, const std::function<void()>& f) const;
  std::vector<StateTensor> state() const { return masters_; }  // "master"; empty for float32

 private:
  // int8 blocks of one bucket: of all shards, placed in the gathered messages; of this rank's shard, in its own
  // message, with offsets within the shard.
  struct Blocks {
    BlockTable<CodedBlock> all = {}, own = {};
    int64_t words = 0;  // per message
  };

  void add_blocks(const Bucket& bucket, int64_t block_size);
  const Blocks& blocks_of(const Bucket& bucket) const;
  Tensor encode(const Tensor& values, const BlockTable<CodedBlock>& blocks, int64_t words) const;
  void decode(const Bucket& bucket, const Tensor& messages, const Tensor& x) const;
  void keep_and_round(Bucket& bucket) const;
  const Tensor& master(const Bucket& bucket) const;

  ParameterWire wire_;
  std::unique_ptr<Compressor> compressor_;
  std::vector<Blocks> blocks_;
  std::vector<StateTensor> masters_;  // one per bucket
};

}  // namespace godwit
