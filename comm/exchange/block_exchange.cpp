#include "comm/exchange/block_exchange.h"

#include <algorithm>

#include "comm/buckets/blocks.h"
#include "comm/buckets/finite.h"
#include "engine/data_ptr.h"
#include "engine/host_reads.h"
#include "engine/philox.h"

namespace godwit {
namespace {

class BlockExchange : public Exchange {
 public:
  BlockExchange(std::unique_ptr<Compressor> compressor, const BlockExchangeOptions& options, const Buckets& buckets,
                const Communicator& comm, uint64_t seed)
      : compressor_(std::move(compressor)), options_(options), seed_(seed) {
    check(compressor_ != nullptr, options.name, ": the compressor is null; pass one");
    options.check();
    for (const Bucket& bucket : buckets) add_part(bucket, comm);
  }

  void mean(Bucket& bucket, Communicator& comm, int64_t step) override {
    const size_t i = static_cast<size_t>(bucket.index);
    check(i < states_.size() && states_[i].bucket_begin == bucket.begin && states_[i].numel == bucket.numel,
          options_.name, ": bucket ", bucket.index, " was not passed to the constructor; use the same buckets");
    check(step >= 1 && step <= UINT32_MAX, options_.name, ": step ", step, " is not in 1 … 2³²−1");
    BucketState& state = states_[i];
    Group& group = *comm.world;
    const Tensor codes({static_cast<int64_t>(state.segments.size()) * state.words}, DType::u32);
    encode(state, bucket, rng(step, Purpose::gradient_code, group.rank()), codes);
    const Tensor& result = state.mean.defined() ? state.mean : bucket.grad;
    if (group.size() == 1) {
      average(state, state.blocks, codes, 1, result);
    } else if (options_.reply == Reply::all_gather) {
      const Tensor all({group.size() * state.words}, DType::u32);
      group.all_gather(codes, all, phase("all_gather"));
      average(state, state.blocks, all, group.size(), result);
    } else {
      const Tensor own(codes.shape(), DType::u32);
      group.all_to_all(codes, own, phase("all_to_all"));
      average(state, state.served, own, group.size(), result);
      if (options_.reply == Reply::sharded) return;
      options_.reply == Reply::coded ? reply_coded(state, group, step, codes, result) : reply_f32(state, group, result);
    }
    if (state.mean.defined()) bucket.grad.range(0, state.numel).copy_from(state.mean);
  }

  std::vector<StateTensor> state() const override {
    std::vector<StateTensor> all;
    for (const BucketState& state : states_) {
      if (state.memory.defined())
        all.push_back({options_.worker == Feedback::residual ? "e" : "h", state.bucket_begin, state.memory, false});
      if (state.mean.defined()) all.push_back({"mean_h", state.bucket_begin, state.mean, true});
      if (state.server_error.defined() && state.server_error.numel() > 0)
        all.push_back({"server_e", state.bucket_begin + state.segments[rank_].begin, state.server_error, false});
    }
    return all;
  }

 private:
  struct BucketState {
    int64_t bucket_begin = 0, numel = 0;
    BlockTable<CodedBlock> blocks = {};  // all blocks, in the messages to the owners of their segments
    BlockTable<CodedBlock> served = {};  // blocks of this rank's segment, in one message
    std::vector<Segment> segments = {};  // the values of each owner
    std::vector<int64_t> used = {};      // words of each segment's message that are used
    int64_t words = 0, longest = 0;      // words of a message; values of the longest segment
    Tensor memory = {};                  // [numel], the worker's feedback state; undefined with Feedback::none
    Tensor mean = {};                    // [numel], mean of all ranks' estimates (EF21); otherwise undefined
    Tensor server_error = {};            // error feedback of this rank's segment
  };

  void add_part(const Bucket& bucket, const Communicator& comm) {
    check(bucket.param.dtype() == DType::f32, options_.name, ": gradients are ", bucket.param.dtype(),
          ", expected float32; use exchange dense");
    rank_ = static_cast<size_t>(comm.rank);
    const int owners = options_.reply == Reply::all_gather ? 1 : comm.world->size();
    const BlockLayout layout = options_.reply == Reply::sharded
                                   ? BlockLayout(bucket, options_.block_size, bucket.shards)
                                   : BlockLayout(bucket, options_.block_size, owners);
    BucketState state{.bucket_begin = bucket.begin, .numel = bucket.numel};
    for (int s = 0; s < owners; ++s) {
      state.segments.push_back(layout.segment(s));
      state.used.push_back(0);
      for (const Segment& block : layout.parts(s)) state.used.back() += compressor_->payload_words(block.numel());
      state.words = std::max(state.words, state.used.back());
    }
    for (int s = 0; s < owners; ++s) {
      int64_t at = 0;
      for (const Segment& block : layout.parts(s)) {
        state.blocks.all.push_back({block.begin, block.numel(), s * state.words + at, block.begin});
        if (s == (owners == 1 ? 0 : comm.rank))
          state.served.all.push_back({block.begin, block.numel(), at, block.begin - layout.segment(s).begin});
        at += compressor_->payload_words(block.numel());
      }
    }
    state.longest = layout.longest();
    if (options_.worker != Feedback::none) state.memory = Tensor::zeros({bucket.numel});
    if (options_.worker == Feedback::ef21) state.mean = Tensor::zeros({bucket.numel});
    if (options_.server_error && owners > 1) state.server_error = Tensor::zeros({state.segments[rank_].numel()});
    states_.push_back(std::move(state));
  }

  std::string phase(const char* name) const { return options_.name + "/" + name; }

  RngKey rng(int64_t step, Purpose purpose, int sender) const {
    return {seed_, static_cast<uint32_t>(step), static_cast<uint32_t>(purpose), static_cast<uint32_t>(sender)};
  }

  // Writes the codes of all blocks to `codes`, with zeros after each segment's message.
  void encode(const BucketState& state, const Bucket& bucket, const RngKey& rng, const Tensor& codes) const {
    for (size_t s = 0; s < state.segments.size(); ++s)
      if (const int64_t unused = state.words - state.used[s]; unused > 0)
        codes.range(static_cast<int64_t>(s) * state.words + state.used[s], unused).zero();
    const Tensor faults = on_device(bucket.grad, [&](auto device) {
      float* kept = state.memory.defined() ? data_ptr<float>(device, state.memory) : nullptr;
      return encode_blocks(device, *compressor_, data_ptr<float>(device, bucket.grad), options_.worker, kept,
                           state.blocks, rng, bucket.begin, data_ptr<uint32_t>(device, codes));
    });
    read_on_host(
        faults, [this, step = int64_t{rng.step}, &bucket, later = reads_later(faults.device())](const Tensor& x) {
          if (encoded(x)) return;
          later ? fail_kept_not_finite(options_.name, step, bucket) : fail_not_finite(options_.name, step, bucket);
        });
  }

  // Writes the mean of `senders` messages with these blocks to `result`, at bucket offsets. With EF21, adds the mean to
  // the mean of the estimates.
  void average(const BucketState& state, const BlockTable<CodedBlock>& blocks, const Tensor& messages, int senders,
               const Tensor& result) const {
    on_device(result, [&](auto device) {
      mean_of_blocks(device, *compressor_, data_ptr<uint32_t>(device, messages), state.words, senders, blocks,
                     state.mean.defined(), data_ptr<float>(device, result));
    });
  }

  // All-gathers the means. `result` holds each segment's mean on the segment's owner, and on return all means.
  void reply_f32(const BucketState& state, Group& group, const Tensor& result) const {
    const Tensor mean = Tensor::zeros({state.longest}), all({group.size() * state.longest});
    const Segment& own = state.segments[rank_];
    mean.range(0, own.numel()).copy_from(result.range(own.begin, own.numel()));
    group.all_gather(mean, all, phase("all_gather"));
    for (size_t s = 0; s < state.segments.size(); ++s) {
      const Segment& segment = state.segments[s];
      const Tensor from = all.range(static_cast<int64_t>(s) * state.longest, segment.numel());
      result.range(segment.begin, segment.numel()).copy_from(from);
    }
  }

  // Like reply_f32(), with encoded means. `codes` is scratch memory for the codes of all blocks.
  void reply_coded(const BucketState& state, Group& group, int64_t step, const Tensor& codes,
                   const Tensor& result) const {
    const Tensor code = Tensor::zeros({state.words}, DType::u32);
    const Tensor faults = on_device(result, [&](auto device) {
      const bool keeps = state.server_error.defined();
      return encode_blocks(device, *compressor_, data_ptr<float>(device, result),
                           keeps ? Feedback::residual : Feedback::none,
                           keeps ? data_ptr<float>(device, state.server_error) : nullptr, state.served,
                           rng(step, Purpose::mean_code, 0), state.bucket_begin, data_ptr<uint32_t>(device, code));
    });
    const auto check_mean = [this, step](const Tensor& x) {
      check(encoded(x), options_.name, ": step ", step, ": a mean is not finite; lower the learning rate");
    };
    read_on_host(faults, check_mean, HostReads::Order::shared);
    group.all_gather(code, codes, phase("all_gather"));
    average(state, state.blocks, codes, 1, result);
  }

  std::unique_ptr<Compressor> compressor_;
  BlockExchangeOptions options_;
  uint64_t seed_;
  size_t rank_ = 0;
  std::vector<BucketState> states_;
};

}  // namespace

void BlockExchangeOptions::check() const {
  godwit::check(
      !server_error || reply == Reply::coded, name,
      ": error feedback of the owners needs a coded reply; set exchange.reply=coded, or the feedback to worker");
  godwit::check(
      worker != Feedback::ef21 || reply != Reply::coded, name,
      ": reply is coded, but with EF21 every rank keeps the exact mean of all estimates; set exchange.reply to f32 "
      "or none");
}

BlockExchangeOptions block_options(const std::string& name, int64_t block_size, Reply reply, ErrorFeedback feedback) {
  return {.name = name,
          .block_size = block_size,
          .reply = reply,
          .worker = at_worker(feedback) ? Feedback::residual : Feedback::none,
          .server_error = at_server(feedback)};
}

std::unique_ptr<Exchange> block_exchange(std::unique_ptr<Compressor> compressor, const BlockExchangeOptions& options,
                                         const Buckets& buckets, const Communicator& comm, uint64_t seed) {
  return std::make_unique<BlockExchange>(std::move(compressor), options, buckets, comm, seed);
}

}  // namespace godwit
