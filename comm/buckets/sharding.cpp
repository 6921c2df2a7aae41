#include "comm/buckets/sharding.h"

#include <algorithm>

#include "comm/buckets/blocks.h"
#include "comm/compress/int8.h"
#include "comm/compress/wire/half.h"
#include "engine/data_ptr.h"
#include "engine/host_reads.h"

namespace godwit {
namespace {

constexpr const char* kGather = "parameters/all_gather";

void copy_values(const Tensor& from, int64_t from_begin, const Tensor& to, int64_t to_begin, int64_t count) {
  to.range(to_begin, count).copy_from(from.range(from_begin, count));
}

}  // namespace

std::vector<Segment> even_shards(const Bucket& bucket, int ranks) {
  std::vector<Segment> shards;
  const int64_t length = bucket.padded_numel() / ranks;
  for (int r = 0; r < ranks; ++r)
    shards.push_back({std::min(r * length, bucket.numel), std::min((r + 1) * length, bucket.numel)});
  return shards;
}

int64_t longest_shard(const Bucket& bucket) {
  int64_t most = 0;
  for (const Segment& shard : bucket.shards) most = std::max(most, shard.numel());
  return most;
}

// If the shards are regular, collectives use the bucket's memory directly.
bool has_regular_shards(const Bucket& bucket) {
  const int64_t ranks = static_cast<int64_t>(bucket.shards.size()), length = bucket.padded_numel() / ranks;
  if (length * ranks != bucket.padded_numel()) return false;
  for (int64_t r = 0; r < ranks; ++r) {
    const Segment& shard = bucket.shards[static_cast<size_t>(r)];
    if (shard.begin != std::min(r * length, bucket.numel) || shard.numel() > length) return false;
  }
  return true;
}

void shard(Bucket& bucket, int ranks, int rank, std::optional<int64_t> block_size) {
  check(bucket.padded_numel() % ranks == 0, "sharding: bucket ", bucket.index, " has ", bucket.padded_numel(),
        " elements, not a multiple of ", ranks, " ranks; set BucketOptions::alignment to such a multiple");
  bucket.shards.clear();
  if (!block_size) {
    bucket.shards = even_shards(bucket, ranks);
  } else {
    const BlockLayout layout(bucket, *block_size, ranks);
    for (int r = 0; r < ranks; ++r) bucket.shards.push_back(layout.segment(r));
  }
  bucket.owned = bucket.shards[static_cast<size_t>(rank)];
}

void shard(Buckets& buckets, const Communicator& comm, std::optional<int64_t> block_size) {
  for (Bucket& bucket : buckets) shard(bucket, comm.topology.world(), comm.rank, block_size);
}

void all_gather_shards(const Bucket& bucket, const Tensor& own, const Tensor& x, Group& group, std::string_view phase) {
  const int ranks = group.size();
  if (has_regular_shards(bucket)) return group.all_gather(own.range(0, bucket.padded_numel() / ranks), x, phase);
  const int64_t length = longest_shard(bucket);
  const Tensor all({length * ranks}, x.dtype());
  group.all_gather(own.range(0, length), all, phase);
  for (int r = 0; r < ranks; ++r) {
    const Segment& shard = bucket.shards[static_cast<size_t>(r)];
    copy_values(all, r * length, x, shard.begin, shard.numel());
  }
}

void all_gather_shards(const Bucket& bucket, const Tensor& x, Group& world, std::string_view phase) {
  const int64_t length = has_regular_shards(bucket) ? bucket.padded_numel() / world.size() : longest_shard(bucket);
  const Tensor own = Tensor::zeros({length}, x.dtype());
  copy_values(x, bucket.owned.begin, own, 0, bucket.owned.numel());
  all_gather_shards(bucket, own, x, world, phase);
}

Tensor shards_as_parts(const Bucket& bucket, const Tensor& x) {
  if (has_regular_shards(bucket)) return x;
  const int64_t length = longest_shard(bucket), ranks = std::ssize(bucket.shards);
  const Tensor parts = Tensor::zeros({length * ranks}, x.dtype());
  for (int64_t r = 0; r < ranks; ++r) {
    const Segment& shard = bucket.shards[static_cast<size_t>(r)];
    copy_values(x, shard.begin, parts, r * length, shard.numel());
  }
  return parts;
}

void mean_to_owner(const Bucket& bucket, const Tensor& own, Group& group, std::string_view phase) {
  const Tensor parts = shards_as_parts(bucket, bucket.grad);
  const Tensor mean({parts.numel() / group.size()}, parts.dtype());
  group.reduce_scatter(parts, mean, Reduce::mean, phase);
  copy_values(mean, 0, own, 0, bucket.owned.numel());
}

void mean_to_owners(Bucket& bucket, Group& world, std::string_view phase) {
  mean_to_owner(bucket, bucket.grad.range(bucket.owned.begin, bucket.owned.numel()), world, phase);
}

ParameterGather::ParameterGather(Buckets& buckets, ParameterWire wire, int64_t block_size, bool keeps_masters)
    : wire_(wire), compressor_(int8_compressor()) {
  if (wire_ == ParameterWire::f32) return;
  for (Bucket& bucket : buckets) {
    check(bucket.param.dtype() == DType::f32, "sharding: parameter_wire ",
          choices_of(wire).at(static_cast<size_t>(wire)), " takes float32 parameters, not ", bucket.param.dtype(),
          "; use f32");
    if (wire_ == ParameterWire::int8) add_blocks(bucket, block_size);
    if (!keeps_masters) continue;
    masters_.push_back({"master", bucket.begin + bucket.owned.begin, Tensor({bucket.owned.numel()}), false});
    keep_and_round(bucket);
  }
}

void ParameterGather::add_blocks(const Bucket& bucket, int64_t block_size) {
  const BlockLayout layout(bucket, block_size, bucket.shards);
  Blocks blocks;
  for (int pass = 0; pass < 2; ++pass)  // the first pass finds the longest message
    for (int r = 0; r < layout.segments(); ++r) {
      int64_t at = 0;
      for (const Segment& block : layout.parts(r)) {
        if (pass == 1) {
          blocks.all.all.push_back({block.begin, block.numel(), r * blocks.words + at, 0});
          if (block.begin >= bucket.owned.begin && block.end <= bucket.owned.end)
            blocks.own.all.push_back({block.begin - bucket.owned.begin, block.numel(), at, 0});
        }
        at += compressor_->payload_words(block.numel());
      }
      if (pass == 0) blocks.words = std::max(blocks.words, at);
    }
  blocks_.push_back(std::move(blocks));
}

const ParameterGather::Blocks& ParameterGather::blocks_of(const Bucket& bucket) const {
  return blocks_.at(static_cast<size_t>(bucket.index));
}

Tensor ParameterGather::encode(const Tensor& values, const BlockTable<CodedBlock>& blocks, int64_t words) const {
  const Tensor message = Tensor::zeros({words}, DType::u32);
  const Tensor faults = on_device(message, [&](auto device) {
    return encode_blocks(device, *compressor_, data_ptr<float>(device, values), Feedback::none, nullptr, blocks, {}, 0,
                         data_ptr<uint32_t>(device, message));
  });
  const auto check_parameters = [](const Tensor& x) {
    check(encoded(x), "sharding: a parameter is not finite; lower the learning rate or use a warm-up");
  };
  read_on_host(faults, check_parameters, HostReads::Order::shared);
  return message;
}

void ParameterGather::decode(const Bucket& bucket, const Tensor& messages, const Tensor& x) const {
  on_device(messages, [&](auto device) {
    mean_of_blocks(device, *compressor_, data_ptr<uint32_t>(device, messages), 0, 1, blocks_of(bucket).all, false,
                   data_ptr<float>(device, x));
  });
}

// Saves the master weights and rounds as the wire would, without communication, since all ranks have all values.
void ParameterGather::keep_and_round(Bucket& bucket) const {
  if (wire_ == ParameterWire::f32) return;
  copy_values(bucket.param, bucket.owned.begin, master(bucket), 0, bucket.owned.numel());
  if (wire_ == ParameterWire::bf16) return from_half(to_half(bucket.param, DType::bf16, "sharding"), bucket.param);
  const Blocks& blocks = blocks_of(bucket);
  decode(bucket, encode(bucket.param, blocks.all, std::ssize(bucket.shards) * blocks.words), bucket.param);
}

void ParameterGather::before_update(Bucket& bucket) const {
  if (wire_ == ParameterWire::f32) return;
  copy_values(master(bucket), 0, bucket.param, bucket.owned.begin, bucket.owned.numel());
}

void ParameterGather::after_update(Bucket& bucket, Group& world) const {
  if (wire_ == ParameterWire::f32) return all_gather_shards(bucket, bucket.param, world, kGather);
  copy_values(bucket.param, bucket.owned.begin, master(bucket), 0, bucket.owned.numel());
  gather(bucket, master(bucket), bucket.param, world);
}

void ParameterGather::gather(const Bucket& bucket, const Tensor& own, const Tensor& x, Group& group) const {
  if (wire_ == ParameterWire::f32) return all_gather_shards(bucket, own, x, group, kGather);
  if (wire_ == ParameterWire::bf16) {
    const int64_t length = (longest_shard(bucket) + 1) / 2 * 2, count = bucket.owned.numel();  // whole 32-bit words
    const Tensor half = Tensor::zeros({length}, DType::bf16), all({length * group.size()}, DType::bf16);
    half.range(0, count).copy_from(to_half(own.range(0, count), DType::bf16, "sharding"));
    group.all_gather(half, all, kGather);
    for (int r = 0; r < group.size(); ++r) {
      const Segment& shard = bucket.shards[static_cast<size_t>(r)];
      from_half(all.range(r * length, shard.numel()), x.range(shard.begin, shard.numel()));
    }
    return;
  }
  const Blocks& blocks = blocks_of(bucket);
  const Tensor codes = encode(own, blocks.own, blocks.words), all({blocks.words * group.size()}, DType::u32);
  group.all_gather(codes, all, kGather);
  decode(bucket, all, x);
}

void ParameterGather::with_master_weights(Buckets& buckets, Group& world, const std::function<void()>& f) const {
  if (wire_ == ParameterWire::f32) return f();
  for (Bucket& bucket : buckets) {
    before_update(bucket);
    all_gather_shards(bucket, bucket.param, world, "parameters/masters");
  }
  const auto round_all = [&] {
    for (Bucket& bucket : buckets) keep_and_round(bucket);
  };
  try {
    f();
  } catch (...) {
    round_all();
    throw;
  }
  round_all();
}

const Tensor& ParameterGather::master(const Bucket& bucket) const {
  return masters_.at(static_cast<size_t>(bucket.index)).values;
}

}  // namespace godwit
