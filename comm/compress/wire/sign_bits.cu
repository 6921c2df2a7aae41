#include "comm/compress/wire/sign_bits.h"

#include "engine/cuda/elementwise.h"

namespace godwit {
namespace {

constexpr int kPlanes = 16;  // for counts up to 32767 and the carry

// One warp per word.
__global__ void pack_kernel(const float* x, uint32_t* words, int64_t n) {
  for (int64_t i = grid_thread(); i - threadIdx.x % 32 < n; i += grid_threads()) {
    const uint32_t bits = __ballot_sync(0xFFFFFFFFu, i < n && x[i] >= 0);
    if (threadIdx.x % 32 == 0) words[i / 32] = bits;
  }
}

struct Unpacked {
  const uint32_t* words;
  __device__ float operator()(int64_t i) const { return words[i / 32] >> (i % 32) & 1 ? 1.0f : -1.0f; }
};

struct Sum {
  const uint32_t* words;
  int64_t senders, stride;
  __device__ int operator()(int64_t i) const {
    int ones = 0;
    for (int64_t s = 0; s < senders; ++s) ones += static_cast<int>(words[s * stride + i / 32] >> (i % 32) & 1);
    return 2 * ones - static_cast<int>(senders);
  }
};

// Bit-sliced counters: plane p holds bit p of the counts of a word's 32 values. The counts start at a value with which
// they carry into the last plane once half of the senders, rounded up, have a 1.
struct Majority {
  const uint32_t* words;
  int64_t senders, stride, n;
  __device__ uint32_t operator()(int64_t w) const {
    const int64_t begin = (int64_t{1} << (kPlanes - 1)) - (senders + 1) / 2;
    uint32_t planes[kPlanes];
    for (int p = 0; p < kPlanes; ++p) planes[p] = begin >> p & 1 ? ~uint32_t{0} : 0;
    for (int64_t s = 0; s < senders; ++s) {
      uint32_t carry = words[s * stride + w];
      for (int p = 0; p < kPlanes; ++p) {
        const uint32_t next = planes[p] & carry;
        planes[p] ^= carry;
        carry = next;
      }
    }
    const uint32_t votes = planes[kPlanes - 1];
    return 32 * (w + 1) <= n ? votes : votes & ((uint32_t{1} << (n % 32)) - 1);
  }
};

template <class To>
void sum(Cuda device, const uint32_t* words, int64_t senders, int64_t stride, To* to, int64_t n) {
  check(senders >= 1 && senders <= 32767, "sum_signs: ", senders, " senders; 1 to 32767 fit its 16-bit sums");
  generate(device, "sum_signs", n, Sum{words, senders, stride}, to);
}

}  // namespace

void pack_signs(Cuda device, const float* x, uint32_t* words, int64_t n) {
  launch(device, "pack_signs", pack_kernel, blocks_for(device, n), kBlock, x, words, n);
}

void unpack_signs(Cuda device, const uint32_t* words, float* x, int64_t n) {
  generate(device, "unpack_signs", n, Unpacked{words}, x);
}

void sum_signs(Cuda device, const uint32_t* words, int64_t senders, int64_t stride, int16_t* to, int64_t n) {
  sum(device, words, senders, stride, to, n);
}
void sum_signs(Cuda device, const uint32_t* words, int64_t senders, int64_t stride, int32_t* to, int64_t n) {
  sum(device, words, senders, stride, to, n);
}

void majority_signs(Cuda device, const uint32_t* words, int64_t senders, uint32_t* votes, int64_t n) {
  check(senders >= 1 && senders <= 32767, "majority_signs: ", senders, " senders; 1 to 32767 are counted");
  generate(device, "majority_signs", sign_words(n), Majority{words, senders, sign_words(n), n}, votes);
}

}  // namespace godwit
