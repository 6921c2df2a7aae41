// Sharding: each rank owns a shard of every bucket, keeps optimizer state only for this shard, and updates it. The
// shards are all-gathered after the update (ZeRO-1, ZeRO-2) or when operations read them (ZeRO-3: parameter_shards.h).
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/buckets/bucket.h"
#include "comm/compress/block_codes.h"
#include "comm/group.h"
#include "comm/state_tensor.h"

namespace godwit {

// Kinds of sharding. zero1 shards the optimizer state, zero2 also the gradients, and zero3 also the parameters. hybrid
// is zero3 within each node. automatic means that no choice has been made yet: the training programs replace it by
// hybrid or the exchange's default.
enum class Sharding { automatic, none, zero1, zero2, zero3, hybrid };
inline std::vector<std::string> choices_of(Sharding) { return {"auto", "none", "zero1", "zero2", "zero3", "hybrid"}; }
inline bool shards_gradients(Sharding s) { return s >= Sharding::zero2; }   // true for zero2, zero3, hybrid
inline bool shards_parameters(Sharding s) { return s >= Sharding::zero3; }  // true for zero3, hybrid
// Whether an exchange leaves each mean with its owner.
inline bool means_stay_with_owners(Sharding s) { return s == Sharding::zero2 || s == Sharding::zero3; }
enum class ParameterWire { f32, bf16, int8 };  // float32, bfloat16, or 8-bit blocks
inline std::vector<std::string> choices_of(ParameterWire) { return {"f32", "bf16", "int8"}; }

// Sets bucket.shards and bucket.owned for rank `rank` of `ranks`. Must be called before optimizers or exchanges are
// created for the bucket. The padded size must be a multiple of `ranks`. With `block_size`, shards consist of whole
// blocks of this many values of a parameter (0: whole parameters) and are as even as possible. Without it, each shard
// has padded / ranks elements; the last shards may have fewer.
void shard(Bucket& bucket, int ranks, int rank, std::optional<int64_t> block_size);
void shard(Buckets& buckets, const Communicator& comm, std::optional<int64_t> block_size);  // over comm.world

int64_t longest_shard(const Bucket& bucket);                        // number of values of the longest shard
bool has_regular_shards(const Bucket& bucket);                      // all shards begin at multiples of padded / ranks
std::vector<Segment> even_shards(const Bucket& bucket, int ranks);  // [ranks] shards; padding excluded

// Copies the shards of x [padded] to equal, zero-padded parts [ranks · longest shard] for all-to-all or reduce-scatter.
// Returns x itself if its shards already have this layout.
Tensor shards_as_parts(const Bucket& bucket, const Tensor& x);
// Collective: writes the mean of bucket.grad over all ranks to the shard of each rank. Other elements are unchanged.
void mean_to_owners(Bucket& bucket, Group& world, std::string_view phase);
// Collective: own ← this rank's shard of the mean of bucket.grad over the ranks of `group`. `own` has at least as many
// values as the shard.
void mean_to_owner(const Bucket& bucket, const Tensor& own, Group& group, std::string_view phase);
// Collective: every rank receives all shards as x [padded]. `own` is this rank's shard, followed by zeros. Messages
// have padded / ranks values for regular shards, otherwise as many values as the longest shard. `own` has at least that
// many values.
void all_gather_shards(const Bucket& bucket, const Tensor& own, const Tensor& x, Group& group, std::string_view phase);
// Like the function above, with this rank's shard in x.
void all_gather_shards(const Bucket& bucket, const Tensor& x, Group& world, std::string_view phase);

// All-gathers updated shards in float32, bfloat16 or 8-bit blocks. With bfloat16 and 8 bits, every rank, including the
// owner, computes with the rounded values. The owner keeps master weights in full precision and updates these.
class ParameterGather {
 public:
  // The buckets hold identical initial values on all ranks. The constructor rounds them to the wire's precision. int8
  // has one scale per block of `block_size` values of a parameter, so shards must consist of whole blocks.
  // keeps_masters = false: the caller keeps the master weights and calls only gather(); the buckets are not changed.
  ParameterGather(Buckets& buckets, ParameterWire wire, int64_t block_size, bool keeps_masters = true);

  void before_update(Bucket& bucket) const;  // copies the master weights to this rank's shard
  void after_update(Bucket& bucket, Group& world) const;  // collective: saves master weights, all-gathers shards
  // Collective: writes all shards, rounded to the wire's precision, to x [padded]. `own`: as in all_gather_shards(),
  // not rounded. For bf16 and int8, only the values of the shard are read.
  void gather(const Bucket& bucket, const Tensor& own, const Tensor& x, Group& group) const;
  // Collective: calls f while the buckets hold all master weights on all ranks. f may modify them identically on all
  // ranks. With float32, the parameters are the master weights.
  void with_master_weights(Buckets& buckets, Group& world, const std::function<void()>& f) const;
  std::vector<StateTensor> state() const { return masters_; }  // "master"; empty for float32

 private:
  // int8 blocks of one bucket. `all`: blocks of all shards, with positions in the gathered messages. `own`: blocks of
  // this rank's shard, with positions in its message and offsets within the shard.
  struct Blocks {
    BlockTable<CodedBlock> all = {}, own = {};
    int64_t words = 0;  // words per message
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
  std::vector<StateTensor> masters_;  // one tensor per bucket
};

}  // namespace godwit
