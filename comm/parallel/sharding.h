// ZeRO-1 and ZeRO-2: every rank owns a shard of each bucket, keeps optimizer state of it alone and updates it; then all
// ranks gather the shards.
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

// Fills bucket.shards and bucket.owned, before an optimizer or an exchange is made for the buckets. They are padded to
// a multiple of the ranks. Shards are as even as whole blocks of `block_size` values of a parameter allow (0: as whole
// parameters); without one they have padded / ranks elements each, the last ones perhaps fewer.
void shard(Buckets& buckets, const Communicator& comm, std::optional<int64_t> block_size);

std::vector<Segment> even_shards(const Bucket& bucket, int ranks);

// x is [padded]: its shards as equal parts [ranks · length], each padded with zeros to the longest one, for collectives
// that send everybody their shard. x itself where its shards lie so.
Tensor shards_as_parts(const Bucket& bucket, const Tensor& x);
// bucket.grad's mean over all ranks, summed in rank order, on the owner of each shard alone; the rest stays as it was.
void mean_to_owners(Bucket& bucket, Group& world, std::string_view phase);
// Every rank's shard of x [padded] goes to all. Messages have the size of the longest shard.
void all_gather_shards(const Bucket& bucket, const Tensor& x, Group& world, std::string_view phase);

// Brings the updated shards to all ranks, in float32, bfloat16, or 8-bit blocks. Below float32 every rank, the owner included, computes
// with what crossed the wire, and the owner keeps the values that it updates, its masters.
class ShardedParameters {
 public:
  // The buckets hold the initial values, equal on all ranks; afterwards they hold them as the wire would bring them.
  // int8 has a scale for every block of `block_size` values of a parameter: shards are of whole ones.
  ShardedParameters(Buckets& buckets, const std::string& wire, int64_t block_size);

  void before_update(Bucket& bucket) const;  // this rank's shard becomes its masters
  void after_update(Bucket& bucket, Group& world) const;
  // Collective: calls f while all parameters are masters. It may change them, alike on all ranks.
  void with_masters(Buckets& buckets, Group& world, const std::function<void()>& f) const;
  std::vector<StatePart> state() const { return masters_; }  // "master"; none for float32

 private:
  enum class Wire { full, bf16, int8 };

  // Of a bucket, for int8: the blocks of all shards by the messages of all ranks, those of this rank's by its own.
  struct Blocks {
    BlockTable<CodedBlock> all = {}, own = {};
    int64_t words = 0;  // of a message
  };

  void add_blocks(const Bucket& bucket, int64_t block_size);
  const Blocks& blocks_of(const Bucket& bucket) const;
  Tensor encode(const Bucket& bucket, const BlockTable<CodedBlock>& blocks, int64_t words) const;
  void decode(const Bucket& bucket, const Tensor& messages) const;
  void keep_and_round(Bucket& bucket) const;
  const Tensor& master(const Bucket& bucket) const;

  Wire wire_;
  std::unique_ptr<BlockCodec> codec_;
  std::vector<Blocks> blocks_;
  std::vector<StatePart> masters_;  // of each bucket
};

std::vector<std::string> sharding_names();        // none, zero1, zero2
std::vector<std::string> parameter_wire_names();  // f32, bf16, int8

}  // namespace godwit
