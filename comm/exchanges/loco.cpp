#include "comm/exchanges/loco.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include "comm/blocks.h"
#include "comm/finite.h"
#include "comm/sharding.h"
#include "comm/wire/block_math.h"
#include "comm/wire/loco_codes.h"
#include "engine/parallel.h"
#include "engine/philox.h"

namespace godwit {
namespace {

constexpr int64_t kPiece = 8192;  // values that one thread works on at a time

// Values [begin, begin + n) of a bucket, all of one block and one owner; their codes begin at word `at` of a message.
struct Piece {
  int64_t begin, n, at;
  int64_t block;
};

struct Part {
  int64_t bucket_begin = 0, first_block = 0;
  std::vector<Segment> segments = {}, blocks = {};  // blocks: that share a scale
  std::vector<Piece> pieces = {};
  std::vector<size_t> first = {};  // piece of each segment, then their number
  int64_t words = 0, longest = 0;  // of a message; values of a segment
  Tensor e = {};                   // [numel], whole numbers in two's complement
  Tensor scales = {};              // s of each block
};

// 0 is auto. "524288" or "2^19".
double parse_scale(const std::string& name, const std::string& text) {
  if (text == "auto") return 0;
  double value = 0, base = 2;
  const size_t at = text.starts_with("2^") ? 2 : 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), value);
  if (at > 0) value = std::pow(base, value);
  check(error == std::errc() && end == text.data() + text.size() && value >= 0x1p-60 && value <= 0x1p60, name,
        ": scale '", text, "' is not auto, a number from 2^-60 to 2^60, or a power as 2^19");
  return value;
}

// The smallest bfloat16 that is not below x >= 0.
bf16 rounded_up(float x) { return bf16(std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0xFFFFu) & 0xFFFF0000u)); }

class Loco : public Exchange {
 public:
  Loco(const ExchangeConfig& config, const Buckets& buckets, const Communicator& comm, uint64_t seed)
      : config_(config), seed_(seed), fixed_scale_(parse_scale(config.name, config.scale)), rank_(comm.rank) {
    const std::string& name = config.name;
    check(config.bits == 1 || config.bits == 4 || config.bits == 8, name, ": codes have 1, 4 or 8 bits, not ", config.bits);
    check(std::isfinite(config.error_scale) && config.error_scale > 0 && config.error_scale <= 1 << 20, name,
          ": error_scale, the error's scale in units of the gradient's, must be in (0, 2^20], not ", config.error_scale);
    check(config.error_gain_new >= 0 && config.error_gain_new <= 1, name, ": error_gain_new must be in [0, 1], not ",
          config.error_gain_new);
    check(config.reset_every >= 0, name, ": reset_every must not be negative, it is ", config.reset_every);
    check(config.clip_element >= 0, name, ": clip_element must not be negative, it is ", config.clip_element);
    check(config.saturation_limit > 0 && config.saturation_limit <= 1, name,
          ": saturation_limit must be in (0, 1], not ", config.saturation_limit);
    int64_t blocks = 0;
    for (const Bucket& bucket : buckets) {
      add_part(bucket, comm);
      parts_.back().first_block = blocks;
      blocks += std::ssize(parts_.back().blocks);
    }
  }

  void mean(Bucket& bucket, Communicator& comm, int64_t step) override {
    const size_t i = static_cast<size_t>(bucket.index);
    check(i < parts_.size() && parts_[i].bucket_begin == bucket.begin && parts_[i].e.numel() == bucket.numel,
          config_.name, ": bucket ", bucket.index, " is not one it was made for");
    check(step >= 1 && step <= UINT32_MAX, config_.name, ": step ", step, " is not in 1 … 2³²−1");
    Part& part = parts_[i];
    Group& group = *comm.world;
    const Tensor codes = Tensor::zeros({group.size() * part.words}, DType::u32), own(codes.shape(), DType::u32);
    const Tensor before = part.scales.clone();
    if (fixed_scale_ == 0) agree_on_scales(part, bucket, group);
    encode(part, bucket, step, before, codes);
    group.all_to_all(codes, own, phase("all_to_all"));
    if (config_.sharding == "zero2") mean_of_own(part, bucket, own, group.size());
    else mean_of_all(part, bucket, own, group);
    if (i + 1 == parts_.size()) check_saturation(step);
  }

  // "e": 8-bit errors. "scale", with scale auto: of each block, begins at the number of the bucket's first block.
  std::vector<StatePart> state() const override {
    std::vector<StatePart> all;
    for (const Part& part : parts_) {
      all.push_back({"e", part.bucket_begin, part.e, false});
      if (fixed_scale_ == 0) all.push_back({"scale", part.first_block, part.scales, true});
    }
    return all;
  }

  std::string summary(Group& world) const override {
    const Tensor sums = Tensor::of<double>({static_cast<double>(values_), static_cast<double>(saturated_),
                                            static_cast<double>(zero_)},
                                           Shape{3});
    world.all_reduce(sums, Reduce::sum, "summary");
    if (config_.bits == 1 || sums.item(0) == 0) return "";
    const double saturated = sums.item(1) / sums.item(0), zero = sums.item(2) / sums.item(0);
    std::string text = detail::concat(config_.name, ": ", percent(saturated), " of the values saturated, ", percent(zero),
                                      " were sent as 0");
    if (fixed_scale_ == 0) return text;
    // Most gradients may be 0, as those of words that do not occur: what says that a scale is too large are the others.
    const bool large = saturated > 0.01 || saturated > 0.5 * (1 - zero);
    if (large || zero > 0.99)
      text += detail::concat("; warning: ", held(), large ? ": lower" : ": raise", " exchange.scale, or set it to auto");
    return text;
  }

 private:
  void add_part(const Bucket& bucket, const Communicator& comm) {
    check(bucket.grad.dtype() == DType::f32, config_.name, ": codes float32 gradients, not ", bucket.grad.dtype(),
          "; exchange dense takes either");
    Part part{.bucket_begin = bucket.begin};
    part.segments = bucket.shards.empty() ? even_shards(bucket, comm.world->size()) : bucket.shards;
    if (fixed_scale_ == 0) {
      const BlockLayout layout(bucket, config_.block_size, 1);
      for (int64_t b = 0; b < layout.blocks(); ++b) part.blocks.push_back(layout.block(b));
    } else {
      part.blocks.push_back({0, bucket.numel});
    }
    size_t block = 0;
    for (const Segment& segment : part.segments) {
      part.first.push_back(part.pieces.size());
      int64_t words = 0;
      for (int64_t at = segment.begin; at < segment.end;) {
        while (part.blocks[block].end <= at) ++block;
        const int64_t n = std::min({part.blocks[block].end, segment.end, at + kPiece}) - at;
        part.pieces.push_back({at, n, words, static_cast<int64_t>(block)});
        words += (n * config_.bits + 31) / 32;
        at += n;
      }
      part.words = std::max(part.words, words);
      part.longest = std::max(part.longest, segment.numel());
    }
    part.first.push_back(part.pieces.size());
    part.e = Tensor::zeros({bucket.numel}, DType::u8);
    part.scales = Tensor::full({std::ssize(part.blocks)}, fixed_scale_ > 0 ? fixed_scale_ : 1);
    parts_.push_back(std::move(part));
  }

  std::string phase(const char* what) const { return config_.name + "/" + what; }

  // With M the largest |g| of the block on any rank (one bit: the largest mean of |g|), rounded up to bfloat16: s = 7/M, 127/M or
  // 1/(2M). A block without a gradient anywhere keeps its scale.
  void agree_on_scales(Part& part, const Bucket& bucket, Group& group) const {
    const float* g = bucket.grad.data<float>();
    const int64_t blocks = std::ssize(part.blocks);
    const float clip = clip_element();
    const Tensor own({blocks}, DType::bf16), all({group.size() * blocks}, DType::bf16);
    parallel_for(blocks, 16, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const Segment& block = part.blocks[static_cast<size_t>(b)];
        const float* x = g + block.begin;
        const int64_t n = block.numel();
        const float size = config_.bits > 1
                               ? block::largest_magnitude(x, n)
                               : static_cast<float>(block::sum_of_magnitudes(x, n) / static_cast<double>(n));
        own.data<bf16>()[b] = rounded_up(std::min(size, clip));
      }
    });
    group.all_gather(own, all, phase("scales"));
    for (int64_t b = 0; b < blocks; ++b) {
      float most = 0;
      for (int64_t rank = 0; rank < group.size(); ++rank)
        most = std::max(most, float{all.data<bf16>()[rank * blocks + b]});
      if (most == 0) continue;
      most = std::max(most, 0x1p-100f);
      part.scales.data<float>()[b] = config_.bits > 1 ? loco::highest(static_cast<int>(config_.bits)) / most : 1 / (2 * most);
    }
  }

  // before: the scales of the step before, those of the errors.
  void encode(Part& part, const Bucket& bucket, int64_t step, const Tensor& before, const Tensor& codes) {
    const float *g = bucket.grad.data<float>(), *now = part.scales.data<float>(), *old = before.data<float>();
    const float ratio = static_cast<float>(config_.error_scale), gain = static_cast<float>(config_.error_gain_new);
    auto* e = reinterpret_cast<int8_t*>(part.e.data<uint8_t>());
    const Draws draws{seed_, static_cast<uint32_t>(step), static_cast<uint32_t>(Purpose::error_code),
                      static_cast<uint32_t>(rank_)};
    const loco::Settings settings{.bits = static_cast<int>(config_.bits),
                                  .gain_new = gain,
                                  .gain_old = 1 - gain,
                                  .clip = clip_element(),
                                  .random = config_.error_rounding == "random",
                                  .reset = config_.reset_every > 0 && step % config_.reset_every == 0};
    std::atomic<int64_t> saturated{0}, zero{0};
    std::atomic<bool> finite{true};
    for (size_t owner = 0; owner < part.segments.size(); ++owner) {
      uint32_t* words = codes.data<uint32_t>() + static_cast<int64_t>(owner) * part.words;
      for_pieces(part, part.first[owner], part.first[owner + 1], [&](const Piece& piece) {
        const loco::Scales scales{now[piece.block], ratio * old[piece.block], ratio * now[piece.block]};
        const loco::Counts counts = loco::encode(g + piece.begin, e + piece.begin, piece.n, scales, settings, draws,
                                                 bucket.begin + piece.begin, words + piece.at);
        saturated += counts.saturated;
        zero += counts.zero;
        if (!counts.finite) finite = false;
      });
    }
    if (!finite) fail_not_finite(config_.name, step, bucket, g, 0, bucket.numel);
    values_ += bucket.numel;
    saturated_ += saturated;
    zero_ += zero;
  }

  template <class F>
  static void for_pieces(const Part& part, size_t first, size_t last, const F& f) {
    int64_t values = 0;
    for (size_t i = first; i < last; ++i) values += part.pieces[i].n;
    const int64_t count = static_cast<int64_t>(last - first);
    const int64_t grain = std::max<int64_t>(1, (int64_t{1} << 14) * count / std::max<int64_t>(values, 1));
    parallel_for(count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) f(part.pieces[first + static_cast<size_t>(i)]);
    });
  }

  // What a sum of codes is divided by.
  float divisor(const Part& part, const Piece& piece, int senders) const {
    const float s = part.scales.data<float>()[piece.block] * static_cast<float>(senders);
    return config_.bits == 1 ? 2 * s : s;
  }

  static void divide(const int32_t* sums, int64_t n, float by, float* mean) {
    for (int64_t i = 0; i < n; ++i) mean[i] = static_cast<float>(sums[i]) / by;
  }

  void mean_of_own(const Part& part, const Bucket& bucket, const Tensor& own, int senders) const {
    float* g = bucket.grad.data<float>();
    const size_t me = static_cast<size_t>(rank_);
    for_pieces(part, part.first[me], part.first[me + 1], [&](const Piece& piece) {
      int32_t sums[kPiece];
      sum(part, piece, own, senders, sums);
      divide(sums, piece.n, divisor(part, piece, senders), g + piece.begin);
    });
  }

  void sum(const Part& part, const Piece& piece, const Tensor& own, int senders, int32_t* sums) const {
    loco::sum_codes(own.data<uint32_t>() + piece.at, part.words, senders, static_cast<int>(config_.bits), piece.n, sums);
  }

  // The owner's sums are whole numbers, which go to all in as few bytes as hold them.
  void mean_of_all(const Part& part, const Bucket& bucket, const Tensor& own, Group& group) const {
    const int64_t most = static_cast<int64_t>(group.size()) << (config_.bits - 1);
    const int64_t width = config_.bits == 1 ? (group.size() <= 127 ? 1 : group.size() <= 32767 ? 2 : 4)
                          : most <= 128     ? 1
                          : most <= 32768   ? 2
                                            : 4;
    const Tensor sums = Tensor::zeros({part.longest * width}, DType::u8), all({group.size() * part.longest * width}, DType::u8);
    const size_t me = static_cast<size_t>(rank_);
    for_pieces(part, part.first[me], part.first[me + 1], [&](const Piece& piece) {
      int32_t values[kPiece];
      sum(part, piece, own, group.size(), values);
      const int64_t at = piece.begin - part.segments[me].begin;
      if (width == 1) std::copy_n(values, piece.n, reinterpret_cast<int8_t*>(sums.raw()) + at);
      else if (width == 2) std::copy_n(values, piece.n, reinterpret_cast<int16_t*>(sums.raw()) + at);
      else std::copy_n(values, piece.n, reinterpret_cast<int32_t*>(sums.raw()) + at);
    });
    group.all_gather(sums, all, phase("all_gather"));
    float* g = bucket.grad.data<float>();
    for (size_t owner = 0; owner < part.segments.size(); ++owner) {
      const auto* from = all.data<uint8_t>() + static_cast<int64_t>(owner) * part.longest * width;
      for_pieces(part, part.first[owner], part.first[owner + 1], [&](const Piece& piece) {
        int32_t values[kPiece];
        const int64_t at = piece.begin - part.segments[owner].begin;
        if (width == 1) std::copy_n(reinterpret_cast<const int8_t*>(from) + at, piece.n, values);
        else if (width == 2) std::copy_n(reinterpret_cast<const int16_t*>(from) + at, piece.n, values);
        else std::copy_n(reinterpret_cast<const int32_t*>(from) + at, piece.n, values);
        divide(values, piece.n, divisor(part, piece, group.size()), g + piece.begin);
      });
    }
  }

  void check_saturation(int64_t step) const {
    if (fixed_scale_ == 0 || config_.bits == 1 || values_ == zero_) return;
    const double part = static_cast<double>(saturated_) / static_cast<double>(values_ - zero_);
    check(part <= config_.saturation_limit, config_.name, ": after step ", step, ", ", percent(part),
          " of this worker's values that are not sent as 0 have saturated: ", held(),
          "; lower exchange.scale, set it to auto, or raise exchange.saturation_limit");
  }

  std::string held() const {
    const float s = static_cast<float>(fixed_scale_), most = loco::highest(static_cast<int>(config_.bits)) / s;
    return detail::concat(config_.bits, " bits at scale ", fixed_scale_, " hold |g| up to ", most, " in steps of ", 1 / s);
  }

  static std::string percent(double part) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g %%", 100 * part);
    return text;
  }

  float clip_element() const {
    return config_.clip_element > 0 ? static_cast<float>(config_.clip_element) : std::numeric_limits<float>::infinity();
  }

  ExchangeConfig config_;
  uint64_t seed_;
  double fixed_scale_;  // 0: auto
  int rank_;
  std::vector<Part> parts_;
  int64_t values_ = 0, saturated_ = 0, zero_ = 0;
};

}  // namespace

std::unique_ptr<Exchange> make_loco(const ExchangeConfig& config, const Buckets& buckets, const Communicator& comm,
                                    uint64_t seed) {
  return std::make_unique<Loco>(config, buckets, comm, seed);
}

}  // namespace godwit
