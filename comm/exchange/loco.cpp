#include "comm/exchange/loco.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "comm/buckets/blocks.h"
#include "comm/buckets/finite.h"
#include "comm/buckets/sharding.h"
#include "comm/compress/loco_pieces.h"
#include "comm/exchange/half_mean.h"
#include "comm/exchange/shared_options.h"
#include "engine/data_ptr.h"
#include "engine/excerpt.h"
#include "engine/host_reads.h"
#include "engine/philox.h"

namespace godwit {
namespace {

// Parses "524288" or "2^19"; auto gives 0. Errors begin with `subject`.
double parse_scale(const std::string& text, const std::string& subject) {
  if (text == "auto") return 0;
  double value = 0, base = 2;
  const size_t at = text.starts_with("2^") ? 2 : 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), value);
  if (at > 0) value = std::pow(base, value);
  check(error == std::errc() && end == text.data() + text.size() && value >= 0x1p-60 && value <= 0x1p60, subject, " '",
        excerpt(text), "' is not auto, a number from 2^-60 to 2^60, or a power such as 2^19");
  return value;
}

class Loco : public Exchange {
 public:
  Loco(const std::string& name, const LocoOptions& options, const ExchangeInputs& in)
      : name_(name),
        options_(options),
        to_owners_(means_stay_with_owners(in.sharding)),
        seed_(in.seed),
        fixed_scale_(parse_scale(options.scale, name + ": scale")),
        rank_(in.comm.rank) {
    int64_t blocks = 0;
    for (const Bucket& bucket : in.buckets) {
      add_part(bucket, in.comm);
      states_.back().first_block = blocks;
      blocks += std::ssize(states_.back().blocks.all);
    }
  }

  void mean(Bucket& bucket, Communicator& comm, int64_t step) override {
    const size_t i = static_cast<size_t>(bucket.index);
    check(i < states_.size() && states_[i].bucket_begin == bucket.begin && states_[i].e.numel() == bucket.numel, name_,
          ": bucket ", bucket.index, " was not passed to the constructor; use the same buckets");
    check(step >= 1 && step <= UINT32_MAX, name_, ": step ", step, " is not in 1 … 2³²−1");
    BucketState& state = states_[i];
    Group& group = *comm.world;
    const Tensor codes = Tensor::zeros({group.size() * state.words}, DType::u32), own(codes.shape(), DType::u32);
    const Tensor before = state.scales.clone();
    if (fixed_scale_ == 0) agree_on_scales(state, bucket, group);
    encode(state, bucket, step, before, codes);
    group.all_to_all(codes, own, phase("all_to_all"));
    const loco::Messages messages{nullptr, state.words, group.size(), static_cast<int>(options_.bits)};
    if (to_owners_) mean_of_own(state, bucket, own, messages);
    else mean_of_all(state, bucket, own, messages, group);
    if (is_last(bucket) && !reads_later(bucket.grad.device())) check_saturation(step);
  }

  std::vector<double> counters() const override {
    std::vector<double> all{static_cast<double>(values_), static_cast<double>(saturated_), static_cast<double>(zero_)};
    for (const auto& [name, value] : units()) all.push_back(value);
    all.push_back(static_cast<double>(options_.bits));
    return all;
  }
  void restore(const std::vector<double>& counters) override {
    check(counters.size() >= 3, name_, ": the checkpoint has ", counters.size(), " counters, expected ",
          4 + units().size());
    values_ = std::llround(counters.at(0)), saturated_ = std::llround(counters.at(1));
    zero_ = std::llround(counters.at(2));
    if (counters.size() == 3) return;  // saved by an earlier version
    const bool has_bits = counters.size() == 4 + units().size();  // not in earlier versions
    check(has_bits || counters.size() == 3 + units().size(), name_, ": the checkpoint has ", counters.size(),
          " counters, expected ", 4 + units().size());
    size_t i = 3;
    for (const auto& [name, value] : units()) {
      const double saved = counters.at(i++);
      check(saved == value, name_, ": the saved errors have ", name, " ", saved, ", this run has ", value,
            name == std::string("scale") ? " (0: auto)" : "", "; resume with the exchange options of the saved run");
    }
    // The scale of a block without gradients is 1, or infinity with 1 bit.
    check(!has_bits || fixed_scale_ != 0 || (counters[i] == 1) == (options_.bits == 1), name_,
          ": the scales were saved with ", counters[i], " bits, this run has ", options_.bits,
          "; resume with the exchange options of the saved run");
  }
  // "e": 8-bit errors. "scale" (scale auto): s per block; its offset is the index of the bucket's first block.
  std::vector<StateTensor> state() const override {
    std::vector<StateTensor> all;
    for (const BucketState& state : states_) {
      all.push_back({"e", state.bucket_begin, state.e, false});
      if (fixed_scale_ == 0) all.push_back({"scale", state.first_block, state.scales, true});
    }
    return all;
  }

  std::string summary(Group& world) const override {
    const Tensor sums = Tensor::of<double>({static_cast<double>(values_), static_cast<double>(saturated_),
                                            static_cast<double>(zero_)},
                                           Shape{3});
    world.all_reduce(sums, Reduce::sum, "summary");
    if (options_.bits == 1 || sums.item(0) == 0) return "";
    const double saturated = sums.item(1) / sums.item(0), zero = sums.item(2) / sums.item(0);
    std::string text =
        detail::concat(name_, ": ", percent(saturated), " of the values saturated, ", percent(zero), " were sent as 0");
    if (fixed_scale_ == 0) return text;
    // Most gradients may be 0, such as for absent words, so only nonzero gradients show whether the scale is too
    // large.
    const bool large = saturated > 0.01 || saturated > 0.5 * (1 - zero);
    if (large || zero > 0.99)
      text +=
          detail::concat("; warning: ", held(), large ? ": lower" : ": raise", " exchange.scale, or set it to auto");
    return text;
  }

 private:
  struct BucketState {
    int64_t bucket_begin = 0, first_block = 0;
    BlockTable<Segment> blocks = {};     // blocks that share a scale
    Table<loco::Piece> sent = {};        // for all shards, in the messages to their owners
    Table<loco::Piece> served = {};      // for this rank's shard, in one message
    int64_t words = 0, longest = 0;      // words of a message; values of the longest shard
    Tensor e = {};                       // [numel], two's complement integers
    Tensor scales = {};                  // s per block
  };

  // The options that give the errors and scales their meaning.
  std::vector<std::pair<const char*, double>> units() const {
    return {{"scale", fixed_scale_},
            {"error_scale", options_.error_scale},
            {"block_size", fixed_scale_ == 0 ? static_cast<double>(options_.block_size) : 0}};
  }

  void add_part(const Bucket& bucket, const Communicator& comm) {
    check(bucket.param.dtype() == DType::f32, name_, ": gradients are ", bucket.param.dtype(),
          ", expected float32; use exchange dense");
    if (bucket.shards.empty()) check_divides(bucket, comm.world->size(), name_.c_str());
    BucketState state{.bucket_begin = bucket.begin};
    const std::vector<Segment> shards = bucket.shards.empty() ? even_shards(bucket, comm.world->size()) : bucket.shards;
    if (fixed_scale_ == 0) {
      const BlockLayout layout(bucket, options_.block_size, 1);
      for (int64_t b = 0; b < layout.blocks(); ++b) state.blocks.all.push_back(layout.block(b));
    } else {
      state.blocks.all.push_back({0, bucket.numel});
    }
    cut(state, shards);
    state.e = Tensor::zeros({bucket.numel}, DType::u8);
    state.scales = Tensor::full({std::ssize(state.blocks.all)},
                                fixed_scale_ > 0 ? fixed_scale_ : loco::scale_before(static_cast<int>(options_.bits)));
    states_.push_back(std::move(state));
  }

  // Cuts the shards into pieces. A piece's codes begin at a word boundary.
  void cut(BucketState& state, const std::vector<Segment>& shards) const {
    std::vector<std::vector<loco::Piece>> of_shards;
    size_t block = 0;
    for (const Segment& shard : shards) {
      of_shards.emplace_back();
      int64_t words = 0;
      for (int64_t at = shard.begin; at < shard.end;) {
        while (state.blocks.all[block].end <= at) ++block;
        const int64_t n = std::min({state.blocks.all[block].end, shard.end, at + loco::kPiece}) - at;
        of_shards.back().push_back({at, n, static_cast<int64_t>(block), words, at - shard.begin});
        words += (n * options_.bits + 31) / 32;
        at += n;
      }
      state.words = std::max(state.words, words);
      state.longest = std::max(state.longest, shard.numel());
    }
    state.served.all = of_shards[static_cast<size_t>(rank_)];
    for (int64_t owner = 0; owner < std::ssize(of_shards); ++owner)
      for (loco::Piece piece : of_shards[static_cast<size_t>(owner)]) {
        piece.code += owner * state.words;
        piece.sum += owner * state.longest;
        state.sent.all.push_back(piece);
      }
  }

  std::string phase(const char* what) const { return name_ + "/" + what; }

  // s = 7/M (4 bits), 127/M (8) or 1/(2M) (1), where M is the largest |g| of the block over all ranks, rounded up to
  // bfloat16; for 1 bit, the largest mean of |g|. A block with no gradient on any rank keeps its scale. The mean of a
  // block that has never had a gradient is 0.
  void agree_on_scales(BucketState& state, const Bucket& bucket, Group& group) const {
    const int64_t blocks = std::ssize(state.blocks.all);
    const Tensor own({blocks}, DType::bf16), all({group.size() * blocks}, DType::bf16);
    on_device(bucket.grad, [&](auto device) {
      loco::sizes(device, data_ptr<float>(device, bucket.grad), state.blocks, options_.bits == 1, clip_element(),
                  data_ptr<bf16>(device, own));
    });
    group.all_gather(own, all, phase("scales"));
    on_device(bucket.grad, [&](auto device) {
      loco::agree(device, data_ptr<bf16>(device, all), group.size(), blocks, static_cast<int>(options_.bits),
                  data_ptr<float>(device, state.scales));
    });
  }

  bool is_last(const Bucket& bucket) const { return static_cast<size_t>(bucket.index) + 1 == states_.size(); }

  // before: the previous step's scales, in which the stored errors are expressed.
  void encode(BucketState& state, const Bucket& bucket, int64_t step, const Tensor& before, const Tensor& codes) {
    const float ratio = static_cast<float>(options_.error_scale), gain = static_cast<float>(options_.error_gain_new);
    const RngKey rng{seed_, static_cast<uint32_t>(step), static_cast<uint32_t>(Purpose::error_code),
                      static_cast<uint32_t>(rank_)};
    const loco::Settings settings{.bits = static_cast<int>(options_.bits),
                                  .gain_new = gain,
                                  .gain_old = 1 - gain,
                                  .clip = clip_element(),
                                  .random = options_.error_rounding == LocoOptions::Rounding::random,
                                  .reset = options_.reset_every > 0 && step % options_.reset_every == 0};
    const Tensor totals = on_device(bucket.grad, [&](auto device) {
      const loco::BlockScales scales{data_ptr<float>(device, state.scales), data_ptr<float>(device, before), ratio};
      return loco::encode(device, data_ptr<float>(device, bucket.grad),
                          reinterpret_cast<int8_t*>(data_ptr<uint8_t>(device, state.e)), state.sent, scales, settings,
                          rng, bucket.begin, data_ptr<uint32_t>(device, codes));
    });
    read_on_host(totals, [this, step, &bucket, later = reads_later(totals.device())](const Tensor& x) {
      const loco::Counts counts = loco::counts_of(x);
      if (!counts.finite) later ? fail_kept_not_finite(name_, step, bucket) : fail_not_finite(name_, step, bucket);
      values_ += bucket.numel;
      saturated_ += counts.saturated;
      zero_ += counts.zero;
      if (later && is_last(bucket)) check_saturation(step);
    });
  }

  static void mean_of_own(const BucketState& state, const Bucket& bucket, const Tensor& own, loco::Messages messages) {
    on_device(bucket.grad, [&](auto device) {
      messages.words = data_ptr<uint32_t>(device, own);
      loco::mean_of_codes(device, messages, state.served, data_ptr<float>(device, state.scales),
                          data_ptr<float>(device, bucket.grad));
    });
  }

  // Owners all-gather integer sums in 1, 2 or 4 bytes, the fewest that hold them.
  void mean_of_all(const BucketState& state, const Bucket& bucket, const Tensor& own, loco::Messages messages,
                   Group& group) const {
    const int64_t most = static_cast<int64_t>(group.size()) << (options_.bits - 1);
    const int64_t width = options_.bits == 1 ? (group.size() <= 127     ? 1
                                                : group.size() <= 32767 ? 2
                                                                        : 4)
                          : most <= 128      ? 1
                          : most <= 32768    ? 2
                                             : 4;
    const Tensor sums = Tensor::zeros({state.longest * width}, DType::u8);
    const Tensor all({group.size() * state.longest * width}, DType::u8);
    on_device(bucket.grad, [&](auto device) {
      messages.words = data_ptr<uint32_t>(device, own);
      loco::sum_codes(device, messages, state.served, width, data_ptr<uint8_t>(device, sums));
    });
    group.all_gather(sums, all, phase("all_gather"));
    on_device(bucket.grad, [&](auto device) {
      loco::mean_of_sums(device, messages, data_ptr<uint8_t>(device, all), width, state.sent,
                         data_ptr<float>(device, state.scales), data_ptr<float>(device, bucket.grad));
    });
  }

  void check_saturation(int64_t step) const {
    if (fixed_scale_ == 0 || options_.bits == 1 || values_ == zero_) return;
    const double share = static_cast<double>(saturated_) / static_cast<double>(values_ - zero_);
    check(share <= options_.saturation_limit, name_, ": after step ", step, ", ", percent(share),
          " of this worker's nonzero codes are saturated: ", held(),
          "; lower exchange.scale, set it to auto, or raise exchange.saturation_limit");
  }

  std::string held() const {
    const float s = static_cast<float>(fixed_scale_), most = loco::highest(static_cast<int>(options_.bits)) / s;
    return detail::concat(options_.bits, " bits at scale ", fixed_scale_, " hold |g| up to ", most, " in steps of ",
                          1 / s);
  }

  static std::string percent(double share) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g %%", 100 * share);
    return text;
  }

  float clip_element() const {
    return options_.clip_element > 0 ? static_cast<float>(options_.clip_element)
                                     : std::numeric_limits<float>::infinity();
  }

  std::string name_;  // prefix of phases and messages
  LocoOptions options_;
  bool to_owners_;  // zero2 or zero3
  uint64_t seed_;
  double fixed_scale_;  // 0: auto
  int rank_;
  std::vector<BucketState> states_;
  int64_t values_ = 0, saturated_ = 0, zero_ = 0;
};

// Warnings about the options, one line each.
std::vector<std::string> notices_of(const LocoOptions& o) {
  if (o.bits != 1 || o.scale == "auto") return {};
  return {"codes of 1 bit cannot saturate, so no check shows whether exchange.scale=" + o.scale +
          " fits the gradients; use exchange.scale=auto, which always fits"};
}

}  // namespace

void LocoOptions::describe(OptionList& list) {
  list.add("bits", bits, "bits per code").with_choices({"1", "4", "8"});
  list.add("scale", scale, "scale of the codes: a number or a power such as 2^19, or auto: one per block and step")
      .or_number()
      .check_text = [](const std::string& text, const std::string& subject) { parse_scale(text, subject); };
  add_block_size(list, block_size);
  list.add("error_scale", error_scale, "scale of the stored error, in units of the codes' scale", {0x1p-20, 0x1p20});
  list.add("error_rounding", error_rounding, "rounding of the stored error to 8 bits");
  list.add("error_gain_new", error_gain_new, "weight of the new error; the old error has 1 minus this weight",
           kFraction);
  list.add("reset_every", reset_every, "steps after which the error is reset; 0: never", kNotNegative);
  list.add("clip_element", clip_element, "limit of the magnitude of a gradient value; 0: no limit", kNotNegative);
  list.add("saturation_limit", saturation_limit,
           "with a fixed scale: fraction of saturated codes among the nonzero codes above which the run ends",
           kAboveZeroToOne);
}

const ExchangeMethod& loco_method() {
  static const ExchangeMethod method{
      .name = "loco",
      .help = "sends codes of 1, 4 or 8 bits to the owners, with error feedback in 8 bits",
      .paper = "Xie et al., LoCo: Low-Bit Communication Adaptor for Large-scale Model Training, arXiv:2407.04480, 2024",
      .bytes =
          "1, 4 or 8 bits per parameter to the owners; 2 bytes per block to every worker with scale auto; integer "
          "sums of 1, 2 or 4 bytes per parameter back",
      .defaults = LocoOptions{},
      .supports_zero2 = [](const AnyOptions&) { return true; },
      .make = [](const AnyOptions& options, const ExchangeInputs& in) -> std::unique_ptr<Exchange> {
        return std::make_unique<Loco>("loco", options.as<LocoOptions>(), in);
      },
      .notices = [](const AnyOptions& options) { return notices_of(options.as<LocoOptions>()); }};
  return method;
}

const ExchangeMethod& loco_zeropp_method() {
  static const ExchangeMethod method{
      .name = "loco_zeropp",
      .help = "sends gradients as loco to the owners of shards, and 8-bit parameters back",
      .paper = "Xie et al., LoCo: Low-Bit Communication Adaptor for Large-scale Model Training, arXiv:2407.04480, 2024",
      .bytes =
          "1, 4 or 8 bits per parameter to the owners; 2 bytes per block to every worker with scale auto; 1 byte per "
          "parameter and one float32 per block back",
      .defaults = LocoZeroppOptions{},
      .sharding = Sharding::zero2,
      .parameter_wire = ParameterWire::int8,
      .supports_zero2 = [](const AnyOptions&) { return true; },
      .make = [](const AnyOptions& options, const ExchangeInputs& in) -> std::unique_ptr<Exchange> {
        return std::make_unique<Loco>("loco_zeropp", options.as<LocoZeroppOptions>(), in);
      },
      .notices = [](const AnyOptions& options) { return notices_of(options.as<LocoZeroppOptions>()); }};
  return method;
}

}  // namespace godwit
