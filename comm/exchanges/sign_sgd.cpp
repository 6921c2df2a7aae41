#include <algorithm>
#include <atomic>

#include "comm/exchanges/exchanges.h"
#include "comm/finite.h"
#include "comm/wire/block_math.h"
#include "comm/wire/sign_bits.h"
#include "engine/parallel.h"

namespace godwit {
namespace {

constexpr int64_t kChunk = 4096;  // values in the first-level cache

class SignSgd : public Exchange {
 public:
  SignSgd(const Buckets& buckets, const Communicator& comm) {
    const int world = comm.world->size();
    check(world <= 32767, "signsgd: ", world, " ranks; at most 32767 votes are counted");
    for (const Bucket& bucket : buckets) {
      check(bucket.grad.dtype() == DType::f32, "signsgd: codes float32 gradients, not ", bucket.grad.dtype(),
            "; exchange dense takes either");
      check(bucket.padded() % (32 * world) == 0, "signsgd: bucket ", bucket.index, " has ", bucket.padded(),
            " values, which is no multiple of 32·", world, "; set BucketOptions::alignment to that");
    }
  }

  void mean(Bucket& bucket, Communicator& comm, int64_t step) override {
    const int64_t length = bucket.padded() / 32;
    const Tensor signs({length}, DType::u32);
    pack(bucket, step, signs.data<uint32_t>());
    const int world = comm.world->size();
    if (world > 1) {
      const Tensor received({length}, DType::u32), votes({length / world}, DType::u32);
      comm.world->all_to_all(signs, received, "signsgd/all_to_all");
      majority_signs(Cpu{}, received.data<uint32_t>(), world, votes.data<uint32_t>(), 32 * votes.numel());
      comm.world->all_gather(votes, signs, "signsgd/all_gather");
    }
    float* g = bucket.grad.data<float>();
    unpack_signs(Cpu{}, signs.data<uint32_t>(), g, bucket.numel);
    std::fill(g + bucket.numel, g + bucket.padded(), 0.0f);
  }

 private:
  static void pack(const Bucket& bucket, int64_t step, uint32_t* words) {
    const float* g = bucket.grad.data<float>();
    std::atomic<bool> finite{true};
    parallel_for(
        bucket.padded(), 1 << 16,
        [&](int64_t begin, int64_t end) {
          for (int64_t at = begin; at < end; at += kChunk) {
            const int64_t n = std::min(kChunk, end - at);
            if (!block::all_finite(g + at, n)) finite = false;
            pack_signs(Cpu{}, g + at, words + at / 32, n);
          }
        },
        kChunk);
    if (!finite) fail_not_finite("signsgd", step, bucket, g, 0, bucket.numel);
  }
};

}  // namespace

std::unique_ptr<Exchange> sign_sgd(const Buckets& buckets, const Communicator& comm) {
  return std::make_unique<SignSgd>(buckets, comm);
}

}  // namespace godwit
