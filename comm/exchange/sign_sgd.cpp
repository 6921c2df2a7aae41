#include "comm/exchange/sign_sgd.h"

#include <algorithm>
#include <atomic>

#include "comm/buckets/finite.h"
#include "comm/compress/wire/block_math.h"
#include "comm/compress/wire/sign_bits.h"
#include "engine/data_ptr.h"
#include "engine/parallel.h"

namespace godwit {
namespace {

constexpr int64_t kChunk = 4096;  // values that fit the L1 cache

class SignSgd : public Exchange {
 public:
  SignSgd(const Buckets& buckets, const Communicator& comm) {
    const int world = comm.world->size();
    check(world <= 32767, "signsgd: ", world, " ranks; expected at most 32767");
    for (const Bucket& bucket : buckets) {
      check(bucket.param.dtype() == DType::f32, "signsgd: gradients are ", bucket.param.dtype(),
            ", expected float32; use exchange dense");
      check(bucket.padded_numel() % (32 * world) == 0, "signsgd: bucket ", bucket.index, " has ", bucket.padded_numel(),
            " values, not a multiple of 32·", world, "; set BucketOptions::alignment to such a multiple");
    }
  }

  void mean(Bucket& bucket, Communicator& comm, int64_t step) override {
    const int64_t length = bucket.padded_numel() / 32;
    const Tensor signs({length}, DType::u32);
    on_device(bucket.grad, [&](auto device) { pack(device, bucket, signs, step); });
    const int world = comm.world->size();
    if (world > 1) {
      const Tensor received({length}, DType::u32), votes({length / world}, DType::u32);
      comm.world->all_to_all(signs, received, "signsgd/all_to_all");
      on_device(received, [&](auto device) {
        majority_signs(device, data_ptr<uint32_t>(device, received), world, data_ptr<uint32_t>(device, votes),
                       32 * votes.numel());
      });
      comm.world->all_gather(votes, signs, "signsgd/all_gather");
    }
    on_device(signs, [&](auto device) {
      unpack_signs(device, data_ptr<uint32_t>(device, signs), data_ptr<float>(device, bucket.grad), bucket.numel);
    });
  }

 private:
  // Throws if a value is not finite; on a GPU by read_on_host().
  static void pack(Cuda device, const Bucket& bucket, const Tensor& signs, int64_t step) {
    pack_signs(device, data_ptr<float>(device, bucket.grad), data_ptr<uint32_t>(device, signs), bucket.padded_numel());
    find_not_finite(bucket.grad, bucket.numel,
                    [&bucket, step](const NotFinite& bad) { fail_not_finite("signsgd", step, bucket, bad); });
  }

  static void pack(Cpu, const Bucket& bucket, const Tensor& signs, int64_t step) {
    const float* g = bucket.grad.data<float>();
    uint32_t* words = signs.data<uint32_t>();
    std::atomic<bool> finite{true};
    parallel_for(
        bucket.padded_numel(), 1 << 16,
        [&](int64_t begin, int64_t end) {
          for (int64_t at = begin; at < end; at += kChunk) {
            const int64_t n = std::min(kChunk, end - at);
            if (!block::all_finite(g + at, n)) finite = false;
            pack_signs(Cpu{}, g + at, words + at / 32, n);
          }
        },
        kChunk);
    if (!finite) fail_not_finite("signsgd", step, bucket);
  }
};

}  // namespace

const ExchangeMethod& signsgd_method() {
  static const ExchangeMethod method{
      .name = "signsgd",
      .help = "majority of the workers' signs, without magnitudes",
      .paper =
          "Bernstein et al., signSGD with Majority Vote is Communication Efficient and Fault Tolerant, "
          "arXiv:1810.05291, 2019",
      .bytes = "1 bit per parameter to the owners, and the same amount back",
      .defaults = SignSgdOptions{},
      .mean_is_signs = true,
      .make = [](const AnyOptions&, const ExchangeInputs& in) -> std::unique_ptr<Exchange> {
        return std::make_unique<SignSgd>(in.buckets, in.comm);
      }};
  return method;
}

}  // namespace godwit
