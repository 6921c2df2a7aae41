#include "comm/exchange/block_exchange.h"

#include <algorithm>

#include "comm/parallel/blocks.h"
#include "comm/parallel/finite.h"
#include "engine/data_ptr.h"
#include "engine/philox.h"

namespace godwit {
namespace {

struct Part {
  int64_t bucket_begin = 0, numel = 0;
  BlockTable<CodedBlock> blocks = {};  // of all segments, in the messages to their owners
  BlockTable<CodedBlock> served = {};  // of the segment this rank owns, in one message
  std::vector<Segment> segments = {};  // the values of each owner
  std::vector<int64_t> used = {};      // words of each segment's message that are used
  int64_t words = 0, longest = 0;      // words of a message; values of the longest segment
  Tensor memory = {};                  // [numel], the worker's; undefined with Memory::none
  Tensor mean = {};                    // [numel], mean of all ranks' estimates (EF21); otherwise undefined
  Tensor server_error = {};            // of the segment this rank owns
};

class BlockExchange : public Exchange {
 public:
  BlockExchange(std::unique_ptr<BlockCodec> codec, const BlockExchangeOptions& options, const Buckets& buckets,
                const Communicator& comm, uint64_t seed)
      : codec_(std::move(codec)), options_(options), seed_(seed) {
    check(codec_ != nullptr, options.name, ": no codec was given");
    options.check();
    for (const Bucket& bucket : buckets) add_part(bucket, comm);
  }

  void mean(Bucket& bucket, Communicator& comm, int64_t step) override {
    const size_t i = static_cast<size_t>(bucket.index);
    check(i < parts_.size() && parts_[i].bucket_begin == bucket.begin && parts_[i].numel == bucket.numel, options_.name,
          ": bucket ", bucket.index, " is not one it was made for");
    check(step >= 1 && step <= UINT32_MAX, options_.name, ": step ", step, " is not in 1 … 2³²−1");
    Part& part = parts_[i];
    Group& group = *comm.world;
    const Tensor codes({static_cast<int64_t>(part.segments.size()) * part.words}, DType::u32);
    encode(part, bucket, draws(step, Purpose::gradient_code, group.rank()), codes);
    const Tensor& result = part.mean.defined() ? part.mean : bucket.grad;
    if (group.size() == 1) {
      average(part, part.blocks, codes, 1, result);
    } else if (options_.reply == Reply::none) {
      const Tensor all({group.size() * part.words}, DType::u32);
      group.all_gather(codes, all, phase("all_gather"));
      average(part, part.blocks, all, group.size(), result);
    } else {
      const Tensor own(codes.shape(), DType::u32);
      group.all_to_all(codes, own, phase("all_to_all"));
      average(part, part.served, own, group.size(), result);
      if (options_.reply == Reply::owners) return;
      options_.reply == Reply::coded ? reply_coded(part, group, step, codes, result) : reply_f32(part, group, result);
    }
    if (part.mean.defined()) bucket.grad.range(0, part.numel).copy_from(part.mean);
  }

  std::vector<StatePart> state() const override {
    std::vector<StatePart> all;
    for (const Part& part : parts_) {
      if (part.memory.defined())
        all.push_back({options_.worker == Memory::error ? "e" : "h", part.bucket_begin, part.memory, false});
      if (part.mean.defined()) all.push_back({"mean_h", part.bucket_begin, part.mean, true});
      if (part.server_error.defined() && part.server_error.numel() > 0)
        all.push_back({"server_e", part.bucket_begin + part.segments[rank_].begin, part.server_error, false});
    }
    return all;
  }

 private:
  void add_part(const Bucket& bucket, const Communicator& comm) {
    check(bucket.param.dtype() == DType::f32, options_.name, ": codes float32 gradients, not ", bucket.param.dtype(),
          "; exchange dense takes either");
    rank_ = static_cast<size_t>(comm.rank);
    const int owners = options_.reply == Reply::none ? 1 : comm.world->size();
    const BlockLayout layout = options_.reply == Reply::owners
                                   ? BlockLayout(bucket, options_.block_size, bucket.shards)
                                   : BlockLayout(bucket, options_.block_size, owners);
    Part part{.bucket_begin = bucket.begin, .numel = bucket.numel};
    for (int s = 0; s < owners; ++s) {
      part.segments.push_back(layout.segment(s));
      part.used.push_back(0);
      for (const Segment& block : layout.parts(s)) part.used.back() += codec_->words(block.numel());
      part.words = std::max(part.words, part.used.back());
    }
    for (int s = 0; s < owners; ++s) {
      int64_t at = 0;
      for (const Segment& block : layout.parts(s)) {
        part.blocks.all.push_back({block.begin, block.numel(), s * part.words + at, block.begin});
        if (s == (owners == 1 ? 0 : comm.rank))
          part.served.all.push_back({block.begin, block.numel(), at, block.begin - layout.segment(s).begin});
        at += codec_->words(block.numel());
      }
    }
    part.longest = layout.longest();
    if (options_.worker != Memory::none) part.memory = Tensor::zeros({bucket.numel});
    if (options_.worker == Memory::estimate) part.mean = Tensor::zeros({bucket.numel});
    if (options_.server_error && owners > 1) part.server_error = Tensor::zeros({part.segments[rank_].numel()});
    parts_.push_back(std::move(part));
  }

  std::string phase(const char* name) const { return options_.name + "/" + name; }

  Draws draws(int64_t step, Purpose purpose, int sender) const {
    return {seed_, static_cast<uint32_t>(step), static_cast<uint32_t>(purpose), static_cast<uint32_t>(sender)};
  }

  // Writes the codes of all blocks to `codes`, with zeros after each segment's message.
  void encode(const Part& part, const Bucket& bucket, const Draws& draws, const Tensor& codes) const {
    for (size_t s = 0; s < part.segments.size(); ++s)
      if (const int64_t unused = part.words - part.used[s]; unused > 0)
        codes.range(static_cast<int64_t>(s) * part.words + part.used[s], unused).zero();
    const bool finite = on_device(bucket.grad, [&](auto device) {
      float* kept = part.memory.defined() ? elements<float>(device, part.memory) : nullptr;
      return encode_blocks(device, *codec_, elements<float>(device, bucket.grad), options_.worker, kept, part.blocks,
                           draws, bucket.begin, elements<uint32_t>(device, codes));
    });
    if (!finite) fail_not_finite(options_.name, draws.step, bucket);
  }

  // Writes the mean of `senders` messages with these blocks to `result`, at bucket offsets; EF21 adds it to the
  // estimates' mean.
  void average(const Part& part, const BlockTable<CodedBlock>& blocks, const Tensor& messages, int senders,
               const Tensor& result) const {
    on_device(result, [&](auto device) {
      mean_of_blocks(device, *codec_, elements<uint32_t>(device, messages), part.words, senders, blocks,
                     part.mean.defined(), elements<float>(device, result));
    });
  }

  // All-gathers the means: result holds each segment's mean on its owner, and all means on return.
  void reply_f32(const Part& part, Group& group, const Tensor& result) const {
    const Tensor mean = Tensor::zeros({part.longest}), all({group.size() * part.longest});
    const Segment& own = part.segments[rank_];
    mean.range(0, own.numel()).copy_from(result.range(own.begin, own.numel()));
    group.all_gather(mean, all, phase("all_gather"));
    for (size_t s = 0; s < part.segments.size(); ++s) {
      const Segment& segment = part.segments[s];
      const Tensor from = all.range(static_cast<int64_t>(s) * part.longest, segment.numel());
      result.range(segment.begin, segment.numel()).copy_from(from);
    }
  }

  // reply_f32() with encoded means; codes: room for the codes of all blocks.
  void reply_coded(const Part& part, Group& group, int64_t step, const Tensor& codes, const Tensor& result) const {
    const Tensor code = Tensor::zeros({part.words}, DType::u32);
    const bool finite = on_device(result, [&](auto device) {
      const bool keeps = part.server_error.defined();
      return encode_blocks(device, *codec_, elements<float>(device, result), keeps ? Memory::error : Memory::none,
                           keeps ? elements<float>(device, part.server_error) : nullptr, part.served,
                           draws(step, Purpose::mean_code, 0), part.bucket_begin, elements<uint32_t>(device, code));
    });
    check(finite, options_.name, ": step ", step, ": a mean is not finite; lower the learning rate");
    group.all_gather(code, codes, phase("all_gather"));
    average(part, part.blocks, codes, 1, result);
  }

  std::unique_ptr<BlockCodec> codec_;
  BlockExchangeOptions options_;
  uint64_t seed_;
  size_t rank_ = 0;
  std::vector<Part> parts_;
};

}  // namespace

void BlockExchangeOptions::check() const {
  godwit::check(
      !server_error || reply == Reply::coded, name,
      ": error feedback of the owners needs a coded reply; set exchange.reply=coded, or the feedback to worker");
  godwit::check(
      worker != Memory::estimate || reply != Reply::coded, name,
      ": every rank keeps the mean of all estimates, which a coded reply would miss; set exchange.reply to f32 "
      "or none");
}

BlockExchangeOptions block_options(const std::string& name, int64_t block_size, Reply reply, ErrorFeedback feedback) {
  return {.name = name,
          .block_size = block_size,
          .reply = reply,
          .worker = at_worker(feedback) ? Memory::error : Memory::none,
          .server_error = at_server(feedback)};
}

std::unique_ptr<Exchange> block_exchange(std::unique_ptr<BlockCodec> codec, const BlockExchangeOptions& options,
                                         const Buckets& buckets, const Communicator& comm, uint64_t seed) {
  return std::make_unique<BlockExchange>(std::move(codec), options, buckets, comm, seed);
}

}  // namespace godwit
