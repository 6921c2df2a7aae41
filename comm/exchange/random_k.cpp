#include "comm/exchange/random_k.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "comm/buckets/blocks.h"
#include "comm/buckets/finite.h"
#include "comm/compress/wire/block_math.h"
#include "comm/compress/wire/gather_scatter.h"
#include "comm/exchange/shared_options.h"
#include "engine/data_ptr.h"
#include "engine/host_reads.h"
#include "engine/parallel.h"
#include "engine/philox.h"

namespace godwit {
namespace {

// Values [begin, begin + n) of a bucket, of which k are sent, from index `at` of the message on.
struct Block {
  int64_t begin, n, k, at;
};

// Sets `count` distinct random bits of n in `bits`, drawing indices one by one. Draw i uses the random word of element
// i mod n of the block and sender i / n.
void draw_indices(uint64_t seed, int64_t step, int64_t element, int64_t n, int64_t count, std::vector<uint64_t>& bits) {
  bits.assign(static_cast<size_t>((n + 63) / 64), 0);
  const uint32_t range = static_cast<uint32_t>(n), biased = -range % range;
  for (int64_t i = 0; count > 0; ++i) {
    const uint32_t word = random_word(seed, element + i % n, static_cast<uint32_t>(step), Purpose::coordinates,
                                      static_cast<uint32_t>(i / n));
    const uint64_t product = uint64_t{word} * range;
    if (static_cast<uint32_t>(product) < biased) continue;  // rejected for uniformity (Lemire)
    const uint64_t index = product >> 32;
    uint64_t& group = bits[index / 64];
    const uint64_t bit = uint64_t{1} << (index % 64);
    count -= (group & bit) == 0;
    group |= bit;
  }
}

class RandomK : public Exchange {
 public:
  RandomK(const RandomKOptions& options, const Buckets& buckets, uint64_t seed)
      : feedback_(options.error_feedback == ErrorFeedback::worker), seed_(seed) {
    for (const Bucket& bucket : buckets) {
      check(bucket.param.dtype() == DType::f32, "randomk: gradients are ", bucket.param.dtype(),
            ", expected float32; use exchange dense");
      const BlockLayout layout(bucket, options.block_size, 1);
      BucketState state{bucket.begin, {}, 0, {}};
      for (const Segment& block : layout.parts(0)) {
        const int64_t n = block.numel();
        check(n <= UINT32_MAX, "randomk: a block has ", n,
              " values, expected at most 2³²−1; use a smaller exchange.block_size");
        const int64_t k =
            std::clamp<int64_t>(static_cast<int64_t>(std::ceil(options.density * static_cast<double>(n))), 1, n);
        state.blocks.push_back({block.begin, n, k, state.sent});
        state.sent += k;
      }
      if (feedback_) state.e = Tensor::zeros({bucket.numel});
      states_.push_back(std::move(state));
    }
  }

  void mean(Bucket& bucket, Communicator& comm, int64_t step) override {
    check(step >= 1 && step <= UINT32_MAX, "randomk: step ", step, " is not in 1 … 2³²−1");
    on_device(bucket.grad, [&](auto device) { mean_on(device, bucket, comm, step); });
  }

  std::vector<StateTensor> state() const override {
    std::vector<StateTensor> all;
    for (const BucketState& state : states_)
      if (state.e.defined()) all.push_back({"e", state.bucket_begin, state.e, false});
    return all;
  }

 private:
  struct BucketState {
    int64_t bucket_begin;
    std::vector<Block> blocks;
    int64_t sent;  // number of values in the message
    Tensor e;
  };

  void mean_on(Cpu, Bucket& bucket, Communicator& comm, int64_t step) {
    BucketState& state = states_.at(static_cast<size_t>(bucket.index));
    const Tensor values({state.sent});
    float *g = bucket.grad.data<float>(), *sent = values.data<float>();
    float* e = feedback_ ? state.e.data<float>() : nullptr;
    std::atomic<bool> finite{true};
    for_blocks(state, [&](const Block& block, std::vector<uint64_t>& bits) {
      float* z = g + block.begin;
      if (e) block::add(z, e + block.begin, e + block.begin, block.n), z = e + block.begin;
      if (!block::all_finite(z, block.n)) finite = false;
      for_each_index(bucket, block, step, bits, [&](int64_t index, int64_t at) {
        sent[at] = z[index];
        if (e) z[index] = 0;
      });
    });
    if (!finite) fail_not_finite("randomk", step, bucket);
    comm.world->all_reduce(values, Reduce::mean, "randomk/all_reduce");
    for_blocks(state, [&](const Block& block, std::vector<uint64_t>& bits) {
      const float scale = scale_of(block);
      std::fill_n(g + block.begin, block.n, 0.0f);
      for_each_index(bucket, block, step, bits,
                 [&](int64_t index, int64_t at) { g[block.begin + index] = sent[at] * scale; });
    });
  }

  // The host draws the indices, because each draw depends on the earlier ones.
  void mean_on(Cuda device, Bucket& bucket, Communicator& comm, int64_t step) {
    BucketState& state = states_.at(static_cast<size_t>(bucket.index));
    std::vector<int64_t> indices(static_cast<size_t>(state.sent));
    std::vector<float> scales(feedback_ ? 0 : indices.size());
    for_blocks(state, [&](const Block& block, std::vector<uint64_t>& bits) {
      for_each_index(bucket, block, step, bits, [&](int64_t index, int64_t at) {
        indices[static_cast<size_t>(at)] = block.begin + index;
        if (!feedback_) scales[static_cast<size_t>(at)] = scale_of(block);
      });
    });
    const Tensor z = feedback_ ? state.e : bucket.grad;
    if (feedback_)
      add_values(device, data_ptr<float>(device, bucket.grad), data_ptr<float>(device, state.e), bucket.numel);
    find_not_finite(z, bucket.numel, [this, &bucket, step, later = reads_later(z.device())](const NotFinite& bad) {
      if (!feedback_) fail_not_finite("randomk", step, bucket, bad);
      later ? fail_kept_not_finite("randomk", step, bucket) : fail_not_finite("randomk", step, bucket);
    });
    const Tensor there = Tensor::of(indices, {state.sent}), values({state.sent});
    gather(device, there, z, feedback_, values);
    comm.world->all_reduce(values, Reduce::mean, "randomk/all_reduce");
    bucket.grad.range(0, bucket.numel).zero();
    scatter(device, there, values, feedback_ ? Tensor() : Tensor::of(scales, {state.sent}), bucket.grad);
  }

  // Factor that makes the mean unbiased without feedback.
  float scale_of(const Block& block) const {
    return feedback_ ? 1 : static_cast<float>(block.n) / static_cast<float>(block.k);
  }

  template <class F>
  static void for_blocks(const BucketState& state, const F& f) {
    const int64_t count = static_cast<int64_t>(state.blocks.size());
    const int64_t values = count > 0 ? state.blocks.back().begin + state.blocks.back().n : 1;
    parallel_for(count, std::max<int64_t>(1, (1 << 15) * count / values), [&](int64_t begin, int64_t end) {
      std::vector<uint64_t> bits;
      for (int64_t i = begin; i < end; ++i) f(state.blocks[static_cast<size_t>(i)], bits);
    });
  }

  // Calls f(index in the block, index in the message) in ascending order. If more than half of the indices are sent,
  // draws the indices that are not sent.
  template <class F>
  void for_each_index(const Bucket& bucket, const Block& block, int64_t step, std::vector<uint64_t>& bits,
                  const F& f) const {
    const bool left_out = 2 * block.k > block.n;
    draw_indices(seed_, step, bucket.begin + block.begin, block.n, left_out ? block.n - block.k : block.k, bits);
    int64_t at = block.at;
    for (size_t group = 0; group < bits.size(); ++group) {
      const int64_t first = static_cast<int64_t>(64 * group);
      uint64_t ones = left_out ? ~bits[group] : bits[group];
      if (left_out && block.n - first < 64) ones &= (uint64_t{1} << (block.n - first)) - 1;
      for (; ones != 0; ones &= ones - 1) f(first + std::countr_zero(ones), at++);
    }
  }

  bool feedback_;
  uint64_t seed_;
  std::vector<BucketState> states_;
};

}  // namespace

void RandomKOptions::describe(OptionList& list) {
  add_density(list, density);
  add_block_size(list, block_size);
  add_error_feedback(list, error_feedback).with_choices({"worker", "none"});  // no owner compresses a mean
}

const ExchangeMethod& randomk_method() {
  static const ExchangeMethod method{
      .name = "randomk",
      .help = "values at random positions that all workers share, with error feedback",
      .paper = "Stich et al., Sparsified SGD with Memory, arXiv:1809.07599, 2018",
      .bytes = "one float32 per value sent to the owners, and the same amount back",
      .defaults = RandomKOptions{},
      .make = [](const AnyOptions& options, const ExchangeInputs& in) -> std::unique_ptr<Exchange> {
        return std::make_unique<RandomK>(options.as<RandomKOptions>(), in.buckets, in.seed);
      }};
  return method;
}

}  // namespace godwit
