#include "comm/sharding.h"

#include <algorithm>
#include <cstring>

#include "comm/blocks.h"
#include "comm/wire/block_math.h"
#include "comm/wire/half.h"
#include "comm/wire/levels.h"
#include "engine/parallel.h"

namespace godwit {
namespace {

constexpr int kLevels = 127;  // of the 8-bit wire

int64_t longest(const Bucket& bucket) {
  int64_t most = 0;
  for (const Segment& shard : bucket.shards) most = std::max(most, shard.numel());
  return most;
}

// Shards follow each other at one distance, so that the bucket's own memory is what a collective takes.
bool regular(const Bucket& bucket) {
  const int64_t ranks = static_cast<int64_t>(bucket.shards.size()), length = bucket.padded() / ranks;
  if (length * ranks != bucket.padded()) return false;
  for (int64_t r = 0; r < ranks; ++r) {
    const Segment& shard = bucket.shards[static_cast<size_t>(r)];
    if (shard.begin != std::min(r * length, bucket.numel) || shard.numel() > length) return false;
  }
  return true;
}

void copy_values(const Tensor& from, int64_t from_begin, const Tensor& to, int64_t to_begin, int64_t count) {
  to.range(to_begin, count).copy_from(from.range(from_begin, count));
}

int64_t words_of(const std::vector<Segment>& blocks) {
  int64_t words = 0;
  for (const Segment& block : blocks) words += scaled_words(block.numel(), kLevels);
  return words;
}

// Calls f(block, where its code begins) on several threads.
template <class F>
void for_blocks(const std::vector<Segment>& blocks, const F& f) {
  std::vector<int64_t> at(1, 0);
  for (const Segment& block : blocks) at.push_back(at.back() + scaled_words(block.numel(), kLevels));
  const int64_t count = std::ssize(blocks), grain = std::max<int64_t>(1, (int64_t{1} << 13) * count / (at.back() + 1));
  parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(blocks[static_cast<size_t>(i)], at[static_cast<size_t>(i)]);
  });
}

}  // namespace

std::vector<Segment> even_shards(const Bucket& bucket, int ranks) {
  std::vector<Segment> shards;
  const int64_t length = bucket.padded() / ranks;
  for (int r = 0; r < ranks; ++r)
    shards.push_back({std::min(r * length, bucket.numel), std::min((r + 1) * length, bucket.numel)});
  return shards;
}

void shard(Buckets& buckets, const Communicator& comm, std::optional<int64_t> block_size) {
  const int ranks = comm.topology.world();
  for (Bucket& bucket : buckets) {
    check(bucket.padded() % ranks == 0, "sharding: bucket ", bucket.index, " has ", bucket.padded(),
          " elements, not a multiple of the ", ranks, " ranks; choose the buckets' alignment so");
    bucket.shards.clear();
    if (!block_size) {
      bucket.shards = even_shards(bucket, ranks);
    } else {
      const BlockLayout layout(bucket, *block_size, ranks);
      for (int r = 0; r < ranks; ++r) bucket.shards.push_back(layout.segment(r));
    }
    bucket.owned = bucket.shards[static_cast<size_t>(comm.rank)];
  }
}

void all_gather_shards(const Bucket& bucket, const Tensor& x, Group& world, std::string_view phase) {
  const int ranks = world.size();
  if (regular(bucket)) {
    const int64_t length = bucket.padded() / ranks;
    return world.all_gather(x.range(world.rank() * length, length).clone(), x, phase);
  }
  const int64_t length = longest(bucket);
  const Tensor own = Tensor::zeros({length}, x.dtype()), all({length * ranks}, x.dtype());
  copy_values(x, bucket.owned.begin, own, 0, bucket.owned.numel());
  world.all_gather(own, all, phase);
  for (int r = 0; r < ranks; ++r) {
    const Segment& shard = bucket.shards[static_cast<size_t>(r)];
    copy_values(all, r * length, x, shard.begin, shard.numel());
  }
}

Tensor shards_as_parts(const Bucket& bucket, const Tensor& x) {
  if (regular(bucket)) return x;
  const int64_t length = longest(bucket), ranks = std::ssize(bucket.shards);
  const Tensor parts = Tensor::zeros({length * ranks}, x.dtype());
  for (int64_t r = 0; r < ranks; ++r) {
    const Segment& shard = bucket.shards[static_cast<size_t>(r)];
    copy_values(x, shard.begin, parts, r * length, shard.numel());
  }
  return parts;
}

void mean_to_owners(Bucket& bucket, Group& world, std::string_view phase) {
  const Tensor parts = shards_as_parts(bucket, bucket.grad);
  const Tensor mean({parts.numel() / world.size()}, parts.dtype());
  world.reduce_scatter(parts, mean, Reduce::mean, phase);
  copy_values(mean, 0, bucket.grad, bucket.owned.begin, bucket.owned.numel());
}

ShardedParameters::ShardedParameters(Buckets& buckets, const std::string& wire, int64_t block_size)
    : wire_(wire == "bf16" ? Wire::bf16 : wire == "int8" ? Wire::int8 : Wire::full), block_size_(block_size) {
  if (wire_ == Wire::full) return;
  for (Bucket& bucket : buckets) {
    check(bucket.param.dtype() == DType::f32, "sharding: parameter_wire ", wire, " takes float32 parameters, not ",
          bucket.param.dtype(), "; take f32");
    masters_.push_back({"master", bucket.begin + bucket.owned.begin, Tensor({bucket.owned.numel()}), false});
    keep_and_round(bucket);
  }
}

// bf16: the values. int8: of each block its scale and its levels.
Tensor ShardedParameters::encode(const Bucket& bucket, int owner) const {
  const Segment& shard = bucket.shards[static_cast<size_t>(owner)];
  const BlockLayout layout(bucket, block_size_, bucket.shards);
  if (wire_ == Wire::bf16) {
    const Tensor message = Tensor::zeros({(layout.longest() + 1) / 2}, DType::u32);
    const Tensor halves = to_half(bucket.param.range(shard.begin, shard.numel()), DType::bf16, "sharding");
    std::memcpy(message.raw(), halves.raw(), static_cast<size_t>(halves.bytes()));
    return message;
  }
  int64_t words = 0;
  for (int r = 0; r < layout.segments(); ++r) words = std::max(words, words_of(layout.parts(r)));
  const Tensor message = Tensor::zeros({words}, DType::u32);
  const float* x = bucket.param.data<float>();
  for_blocks(layout.parts(owner), [&](const Segment& block, int64_t at) {
    const float most = block::largest_magnitude(x + block.begin, block.numel());
    check(block::all_finite(x + block.begin, block.numel()),
          "sharding: a parameter is not finite; lower the learning rate or warm it up");
    encode_scaled(x + block.begin, block.numel(), most, kLevels, nullptr, message.data<uint32_t>() + at);
  });
  return message;
}

void ShardedParameters::decode(const Bucket& bucket, int owner, const Tensor& message) const {
  const Segment& shard = bucket.shards[static_cast<size_t>(owner)];
  if (wire_ == Wire::bf16) {
    const Tensor halves({shard.numel()}, DType::bf16);
    std::memcpy(halves.raw(), message.raw(), static_cast<size_t>(halves.bytes()));
    return from_half(halves, bucket.param.range(shard.begin, shard.numel()));
  }
  float* x = bucket.param.data<float>();
  for_blocks(BlockLayout(bucket, block_size_, bucket.shards).parts(owner), [&](const Segment& block, int64_t at) {
    decode_scaled(message.data<uint32_t>() + at, block.numel(), kLevels, x + block.begin);
  });
}

// Of values that all ranks have: what the wire would bring, without it.
void ShardedParameters::keep_and_round(Bucket& bucket) const {
  if (wire_ == Wire::full) return;
  copy_values(bucket.param, bucket.owned.begin, master(bucket), 0, bucket.owned.numel());
  for (int r = 0; r < static_cast<int>(bucket.shards.size()); ++r) decode(bucket, r, encode(bucket, r));
}

void ShardedParameters::before_update(Bucket& bucket) const {
  if (wire_ == Wire::full) return;
  copy_values(master(bucket), 0, bucket.param, bucket.owned.begin, bucket.owned.numel());
}

void ShardedParameters::after_update(Bucket& bucket, Group& world) const {
  constexpr const char* kPhase = "parameters/all_gather";
  if (wire_ == Wire::full) return all_gather_shards(bucket, bucket.param, world, kPhase);
  copy_values(bucket.param, bucket.owned.begin, master(bucket), 0, bucket.owned.numel());
  const Tensor own = encode(bucket, world.rank()), all({own.numel() * world.size()}, DType::u32);
  world.all_gather(own, all, kPhase);
  for (int r = 0; r < world.size(); ++r) decode(bucket, r, all.range(r * own.numel(), own.numel()));
}

void ShardedParameters::with_masters(Buckets& buckets, Group& world, const std::function<void()>& f) const {
  if (wire_ == Wire::full) return f();
  for (Bucket& bucket : buckets) {
    before_update(bucket);
    all_gather_shards(bucket, bucket.param, world, "parameters/masters");
  }
  f();
  for (Bucket& bucket : buckets) keep_and_round(bucket);
}

const Tensor& ShardedParameters::master(const Bucket& bucket) const {
  return masters_.at(static_cast<size_t>(bucket.index)).values;
}

std::vector<std::string> sharding_names() { return {"none", "zero1", "zero2"}; }
std::vector<std::string> parameter_wire_names() { return {"f32", "bf16", "int8"}; }

}  // namespace godwit
