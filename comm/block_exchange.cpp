#include "comm/block_exchange.h"

#include <algorithm>
#include <atomic>

#include "comm/blocks.h"
#include "comm/finite.h"
#include "comm/wire/block_math.h"
#include "engine/parallel.h"
#include "engine/philox.h"

namespace godwit {
namespace {

constexpr int64_t kGrain = 1 << 15;  // values worth a thread

// Values [begin, begin + n) of a bucket, whose code begins at word `at` of the messages to all segments.
struct Block {
  int64_t begin, n, at;
};

struct Part {
  int64_t bucket_begin = 0, numel = 0;
  std::vector<Block> blocks = {};
  std::vector<size_t> first = {};      // block of each segment, then the number of blocks
  std::vector<Segment> segments = {};  // their values
  int64_t words = 0, longest = 0;      // of a message; values of a segment
  int64_t largest = 0;                 // values of a block
  Tensor memory = {};                  // [numel], the worker's; undefined when there is none
  Tensor mean = {};                    // [numel], of all ranks' estimates
  Tensor server_error = {};            // of the segment this rank owns
};

class BlockExchange : public Exchange {
 public:
  BlockExchange(std::unique_ptr<BlockCodec> codec, const BlockExchangeOptions& options, const Buckets& buckets,
                const Communicator& comm, uint64_t seed)
      : codec_(std::move(codec)), options_(options), seed_(seed) {
    check(codec_ != nullptr, options.name, ": no codec was given");
    check(!options.server_error || options.reply == Reply::coded, options.name,
          ": error feedback of the owners needs a coded reply; set exchange.reply=coded, or the feedback to worker");
    check(options.worker != Memory::estimate || options.reply != Reply::coded, options.name,
          ": every rank keeps the mean of all estimates, which a coded reply would miss; set exchange.reply to f32 or "
          "none");
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
    float* result = part.mean.defined() ? part.mean.data<float>() : bucket.grad.data<float>();
    if (group.size() == 1) {
      average(part, 0, part.blocks.size(), codes, 1, result);
    } else if (options_.reply == Reply::none) {
      const Tensor all({group.size() * part.words}, DType::u32);
      group.all_gather(codes, all, phase("all_gather"));
      average(part, 0, part.blocks.size(), all, group.size(), result);
    } else {
      const Tensor own(codes.shape(), DType::u32);
      group.all_to_all(codes, own, phase("all_to_all"));
      if (options_.reply == Reply::owners)
        return average(part, part.first[rank_], part.first[rank_ + 1], own, group.size(), result);
      options_.reply == Reply::coded ? reply_coded(part, group, step, own, codes, result)
                                     : reply_f32(part, group, own, result);
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
    check(bucket.grad.dtype() == DType::f32, options_.name, ": codes float32 gradients, not ", bucket.grad.dtype(),
          "; exchange dense takes either");
    rank_ = static_cast<size_t>(comm.rank);
    const int owners = options_.reply == Reply::none ? 1 : comm.world->size();
    const BlockLayout layout = options_.reply == Reply::owners
                                   ? BlockLayout(bucket, options_.block_size, bucket.shards)
                                   : BlockLayout(bucket, options_.block_size, owners);
    Part part{.bucket_begin = bucket.begin, .numel = bucket.numel};
    for (int s = 0; s < owners; ++s) {
      part.first.push_back(part.blocks.size());
      part.segments.push_back(layout.segment(s));
      int64_t words = 0;
      for (const Segment& block : layout.parts(s)) {
        part.blocks.push_back({block.begin, block.numel(), words});
        words += codec_->words(block.numel());
        part.largest = std::max(part.largest, block.numel());
      }
      part.words = std::max(part.words, words);
    }
    part.first.push_back(part.blocks.size());
    for (size_t s = 0; s + 1 < part.first.size(); ++s)
      for (size_t b = part.first[s]; b < part.first[s + 1]; ++b)
        part.blocks[b].at += static_cast<int64_t>(s) * part.words;
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

  // Calls f(block, a, b) for the blocks [first, last) on several threads; a and b are scratch for a block's values.
  template <class F>
  static void for_blocks(const Part& part, size_t first, size_t last, F&& f) {
    const int64_t count = static_cast<int64_t>(last - first);
    const int64_t grain = std::max<int64_t>(1, kGrain * count / std::max<int64_t>(part.numel, 1));
    parallel_for(count, grain, [&](int64_t begin, int64_t end) {
      const std::unique_ptr<float[]> a(new float[static_cast<size_t>(part.largest)]);
      const std::unique_ptr<float[]> b(new float[static_cast<size_t>(part.largest)]);
      for (int64_t i = begin; i < end; ++i) f(part.blocks[first + static_cast<size_t>(i)], a.get(), b.get());
    });
  }

  // codes: of all blocks, zeros between the segments.
  void encode(Part& part, const Bucket& bucket, const Draws& draws, const Tensor& codes) const {
    const float* g = bucket.grad.data<float>();
    float* memory = part.memory.defined() ? part.memory.data<float>() : nullptr;
    uint32_t* words = codes.data<uint32_t>();
    std::atomic<bool> finite{true};
    for_blocks(part, 0, part.blocks.size(), [&](const Block& block, float* a, float* b) {
      const BlockDraw draw{draws, bucket.begin + block.begin};
      const float* from = g + block.begin;
      float* kept = memory ? memory + block.begin : nullptr;
      uint32_t* code = words + block.at;
      const int64_t n = block.n;
      if (options_.worker == Memory::error) block::add(from, kept, kept, n), from = kept;
      if (options_.worker == Memory::estimate) block::subtract(from, kept, a, n), from = a;
      if (!block::all_finite(from, n)) return finite.store(false);
      codec_->encode(from, n, draw, code);
      if (!kept) return;
      codec_->add(code, n, options_.worker == Memory::error ? -1.0f : 1.0f, kept, b);
    });
    if (!finite) fail_not_finite(options_.name, draws.step, bucket, g, 0, part.numel);
    for (size_t s = 0; s < part.segments.size(); ++s) {
      int64_t used = static_cast<int64_t>(s) * part.words;
      if (part.first[s] < part.first[s + 1]) {
        const Block& last = part.blocks[part.first[s + 1] - 1];
        used = last.at + codec_->words(last.n);
      }
      std::fill(words + used, words + (static_cast<int64_t>(s) + 1) * part.words, 0u);
    }
  }

  // The mean of `senders` messages that hold the blocks [first, last), to result (by the bucket's offsets); the mean of
  // estimates moves by it.
  void average(const Part& part, size_t first, size_t last, const Tensor& messages, int senders, float* result) const {
    const bool moves = part.mean.defined();
    const uint32_t* words = messages.data<uint32_t>();
    for_blocks(part, first, last, [&](const Block& block, float* a, float* b) {
      const int64_t n = block.n;
      float* sum = moves ? a : result + block.begin;
      const uint32_t* code = words + block.at % std::max<int64_t>(part.words, 1);
      codec_->decode(code, n, sum);
      for (int sender = 1; sender < senders; ++sender) codec_->add(code + sender * part.words, n, 1, sum, b);
      if (senders > 1) block::divide(sum, static_cast<float>(senders), n);
      if (moves) block::add(result + block.begin, sum, result + block.begin, n);
    });
  }

  // own: the messages of all ranks about this rank's segment.
  void reply_f32(const Part& part, Group& group, const Tensor& own, float* result) const {
    const Tensor mean({part.longest}), all({group.size() * part.longest});
    const Segment& segment = part.segments[rank_];
    average(part, part.first[rank_], part.first[rank_ + 1], own, group.size(), result);
    float* to = mean.data<float>();
    std::copy(result + segment.begin, result + segment.end, to);
    std::fill(to + segment.numel(), to + part.longest, 0.0f);
    group.all_gather(mean, all, phase("all_gather"));
    for (size_t s = 0; s < part.segments.size(); ++s) {
      const float* from = all.data<float>() + static_cast<int64_t>(s) * part.longest;
      std::copy_n(from, part.segments[s].numel(), result + part.segments[s].begin);
    }
  }

  // codes: room for those of all means.
  void reply_coded(Part& part, Group& group, int64_t step, const Tensor& own, const Tensor& codes,
                   float* result) const {
    const Draws drawn = draws(step, Purpose::mean_code, 0);
    const Tensor code({part.words}, DType::u32);
    code.zero();
    average(part, part.first[rank_], part.first[rank_ + 1], own, group.size(), result);
    float* error = part.server_error.defined() ? part.server_error.data<float>() : nullptr;
    for_blocks(part, part.first[rank_], part.first[rank_ + 1], [&](const Block& block, float* a, float*) {
      const int64_t n = block.n;
      const float* z = result + block.begin;
      uint32_t* to = code.data<uint32_t>() + block.at % part.words;
      float* kept = error ? error + block.begin - part.segments[rank_].begin : nullptr;
      if (kept) block::add(z, kept, kept, n), z = kept;
      codec_->encode(z, n, {drawn, part.bucket_begin + block.begin}, to);
      if (kept) codec_->add(to, n, -1, kept, a);
    });
    group.all_gather(code, codes, phase("all_gather"));
    const uint32_t* words = codes.data<uint32_t>();
    for_blocks(part, 0, part.blocks.size(), [&](const Block& block, float*, float*) {
      codec_->decode(words + block.at, block.n, result + block.begin);
    });
  }

  std::unique_ptr<BlockCodec> codec_;
  BlockExchangeOptions options_;
  uint64_t seed_;
  size_t rank_ = 0;
  std::vector<Part> parts_;
};

}  // namespace

void BlockCodec::add(const uint32_t* code, int64_t n, float factor, float* x, float* scratch) const {
  decode(code, n, scratch);
  block::add_times(scratch, factor, x, n);
}

std::unique_ptr<Exchange> block_exchange(std::unique_ptr<BlockCodec> codec, const BlockExchangeOptions& options,
                                         const Buckets& buckets, const Communicator& comm, uint64_t seed) {
  return std::make_unique<BlockExchange>(std::move(codec), options, buckets, comm, seed);
}

}  // namespace godwit
