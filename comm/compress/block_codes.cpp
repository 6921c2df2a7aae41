#include "comm/compress/block_codes.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "comm/compress/wire/block_math.h"
#include "engine/parallel.h"
#include "engine/pool.h"

namespace godwit {
namespace {

constexpr int64_t kGrain = 1 << 15;  // minimum number of values per thread

// Calls f(block, a, b) for all blocks on several threads; a and b are scratch memory for a block's values.
template <class F>
void for_blocks(const BlockTable<CodedBlock>& blocks, const F& f) {
  int64_t values = 1, largest = 0;
  for (const CodedBlock& block : blocks.all) values += block.n, largest = std::max(largest, block.n);
  const int64_t count = std::ssize(blocks.all), grain = std::max<int64_t>(1, kGrain * count / values);
  const std::shared_ptr<Pool> pool = context().pool;
  parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    const Buffer scratch(pool, 2 * largest * static_cast<int64_t>(sizeof(float)));
    float* a = reinterpret_cast<float*>(scratch.data());
    for (int64_t i = begin; i < end; ++i) f(blocks.all[static_cast<size_t>(i)], a, a + largest);
  });
}

}  // namespace

Tensor encode_blocks(Cpu, const Compressor& compressor, const float* x, Feedback feedback, float* kept,
                     const BlockTable<CodedBlock>& blocks, const RngKey& rng, int64_t element, uint32_t* words) {
  std::atomic<bool> finite{true};
  for_blocks(blocks, [&](const CodedBlock& block, float* a, float* b) {
    const int64_t n = block.n;
    const float* z = x + block.begin;
    float* own = feedback == Feedback::none ? nullptr : kept + block.kept;
    if (feedback == Feedback::residual) block::add(z, own, own, n), z = own;
    if (feedback == Feedback::ef21) block::subtract(z, own, a, n), z = a;
    if (!compressor.encode_finite(z, n, {rng, element + block.begin}, words + block.at)) return finite.store(false);
    if (own) compressor.add(words + block.at, n, feedback == Feedback::residual ? -1.0f : 1.0f, own, b);
  });
  const Tensor faults({1}, DType::u32, kCpu);
  faults.data<uint32_t>()[0] = finite ? 0u : uint32_t{kNotFinite};
  return faults;
}

bool encoded(const Tensor& faults) {
  const uint32_t found = faults.to(kCpu).data<uint32_t>()[0];
  if (found & kNotFinite) return false;
  check(found == 0, "qsgd: the norm of a block of gradients overflows float32; lower the learning rate");
  return true;
}

void mean_of_blocks(Cpu, const Compressor& compressor, const uint32_t* words, int64_t stride, int senders,
                    const BlockTable<CodedBlock>& blocks, bool moves, float* mean) {
  for_blocks(blocks, [&](const CodedBlock& block, float* a, float* b) {
    const int64_t n = block.n;
    float *to = mean + block.begin, *sum = moves ? a : to;
    const uint32_t* payload = words + block.at;
    compressor.decode(payload, n, sum);
    for (int sender = 1; sender < senders; ++sender) compressor.add(payload + sender * stride, n, 1, sum, b);
    if (senders > 1) block::divide(sum, static_cast<float>(senders), n);
    if (moves) block::add(to, sum, to, n);
  });
}

bool Compressor::encode_finite(const float* x, int64_t n, const BlockRng& rng, uint32_t* payload) const {
  if (!block::all_finite(x, n)) return false;
  encode(x, n, rng, payload);
  return true;
}

void Compressor::add(const uint32_t* payload, int64_t n, float factor, float* x, float* scratch) const {
  decode(payload, n, scratch);
  block::add_times(scratch, factor, x, n);
}

}  // namespace godwit
