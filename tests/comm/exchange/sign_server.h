// The compressed all-reduce with error feedback in plain scalar code: a server that processes whole vectors, without
// segments, messages, buckets or padding. It computes in float32 with the documented order of sums for bit-exact
// comparison, or in float64.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "comm/buckets/bucket.h"

namespace godwit::reference {

// Adds Σ|y| or Σy² of y[0, n) to `sum`, with 16 float32 partial sums within 4096 values and float64 across tiles.
template <class T>
void add_sizes(const T* y, int64_t n, bool l2, double& sum) {
  for (int64_t tile = 0; tile < n; tile += 4096) {
    T parts[16] = {};
    for (int64_t i = tile; i < std::min<int64_t>(n, tile + 4096); ++i)
      parts[(i - tile) % 16] += l2 ? y[i] * y[i] : std::abs(y[i]);
    for (int half = 8; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) parts[i] += parts[i + half];
    sum += static_cast<double>(parts[0]);
  }
}

template <class T>
class SignServer {
 public:
  // `blocks` (of the workers' scales) and `server_blocks` (of the server's scales) each cover [0, d). If a worker's
  // block overlaps several server blocks, it is summed in one piece per server block.
  SignServer(int workers, int64_t d, std::vector<Segment> blocks, std::vector<Segment> server_blocks, bool l2 = false)
      : e(static_cast<size_t>(workers), std::vector<T>(static_cast<size_t>(d))),
        server_e(static_cast<size_t>(d)),
        signs(static_cast<size_t>(workers) + 1, std::vector<char>(static_cast<size_t>(d))),
        blocks_(std::move(blocks)),
        server_blocks_(std::move(server_blocks)),
        l2_(l2) {}

  // The agreed mean of z[worker]. A float64 server uses the signs of the float32 server `of`. It checks that its value
  // is within `slack` of 0 if its sign differs.
  std::vector<T> mean(const std::vector<std::vector<T>>& z, const SignServer<float>* of = nullptr, double slack = 0) {
    std::vector<std::vector<T>> sent;
    for (size_t w = 0; w < e.size(); ++w) sent.push_back(compress(z[w], e[w], w, blocks_, of, slack));
    if (sent.size() == 1) return sent[0];
    std::vector<T> average(server_e.size());
    T* sum = average.data();
    const size_t d = average.size();
    for (const std::vector<T>& one : sent) {
      const T* from = one.data();
      for (size_t j = 0; j < d; ++j) sum[j] += from[j];
    }
    for (size_t j = 0; j < d; ++j) sum[j] /= static_cast<T>(sent.size());
    return compress(average, server_e, e.size(), server_blocks_, of, slack);
  }

  std::vector<std::vector<T>> e;
  std::vector<T> server_e;
  std::vector<std::vector<char>> signs;  // signs of the last call: per worker, then for the server; 1 for +

 private:
  std::vector<T> compress(const std::vector<T>& z, std::vector<T>& error, size_t role,
                          const std::vector<Segment>& blocks, const SignServer<float>* of, double slack) {
    std::vector<T> out(z.size());
    // Uses pointers, because operator[] is a function call in the builds of the tests.
    T *sent = out.data(), *e_j = error.data();
    const T* from = z.data();
    char* plus_of = signs[role].data();
    const char* given = of ? of->signs[role].data() : nullptr;
    for (size_t j = 0, d = z.size(); j < d; ++j) e_j[j] = from[j] + e_j[j];
    for (const Segment& block : blocks) {
      const T s = scale_of(error, block);
      for (int64_t j = block.begin, end = block.end; j < end; ++j) {
        bool plus = e_j[j] >= 0;
        if (given && (given[j] != 0) != plus) {
          EXPECT_LE(std::abs(static_cast<double>(e_j[j])), slack) << "the sign differs at value " << j;
          plus = !plus;
        }
        plus_of[j] = plus;
        sent[j] = plus ? s : -s;
        e_j[j] -= sent[j];
      }
    }
    return out;
  }

  T scale_of(const std::vector<T>& y, const Segment& block) const {
    double sum = 0;
    auto cut = std::upper_bound(server_blocks_.begin(), server_blocks_.end(), block.begin,
                                [](int64_t at, const Segment& s) { return at < s.end; });
    for (; cut != server_blocks_.end() && cut->begin < block.end; ++cut) {
      const int64_t begin = std::max(cut->begin, block.begin), end = std::min(cut->end, block.end);
      add_sizes(y.data() + begin, end - begin, l2_, sum);
    }
    const double mean = sum / static_cast<double>(block.numel());
    return static_cast<T>(l2_ ? std::sqrt(mean) : mean);
  }

  std::vector<Segment> blocks_, server_blocks_;
  bool l2_;
};

// Blocks of `size` values (0: whole parameters) for parameters of these sizes. The last parameter comes first.
inline std::vector<Segment> blocks_of(const std::vector<int64_t>& sizes, int64_t size) {
  std::vector<Segment> blocks;
  int64_t at = 0;
  for (auto numel = sizes.rbegin(); numel != sizes.rend(); at += *numel++)
    for (int64_t i = 0; i<*numel; i += size> 0 ? size : *numel)
      blocks.push_back({at + i, at + std::min(*numel, i + (size > 0 ? size : *numel))});
  return blocks;
}

}  // namespace godwit::reference
