// Inside attention*.cpp: what the heads of a call share, and where each one's rows lie.
#pragma once
#include <cmath>
#include <memory>
#include <vector>

#include "autograd/ops/attention/attention.h"
#include "engine/context.h"
#include "engine/random_words.h"

namespace godwit {

// What all heads of a call share.
struct AttentionCall {
  int64_t batch, queries, keys, heads, width;
  double scale;
  const AttentionOptions& options;
  RngKey rng;
  int32_t dropped;                             // U is below the dropout where its 24 bits are below this
  std::vector<std::vector<int32_t>> attended;  // per batch entry: the keys that are not masked
  std::shared_ptr<Pool> pool;
  int64_t grain() const { return std::max<int64_t>(1, (1 << 18) / (queries * keys * width)); }  // heads

  AttentionCall(const AttentionTensors& t, const AttentionOptions& o)
      : batch(t.q.dim(0)),
        queries(t.q.dim(1)),
        keys(t.k.dim(1)),
        heads(t.q.dim(2)),
        width(t.q.dim(3)),
        scale(o.scale.value_or(1 / std::sqrt(static_cast<double>(width)))),
        options(o),
        rng(o.key.rng()),
        dropped(static_cast<int32_t>(std::ceil(o.dropout * 0x1p24))),
        attended(static_cast<size_t>(batch)),
        pool(context().pool) {
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t j = 0; j < keys; ++j)
        if (!t.mask.defined() || t.mask.data<uint8_t>()[b * keys + j] != 0)
          attended[static_cast<size_t>(b)].push_back(static_cast<int32_t>(j));
  }
};

// One head of one batch entry.
struct AttentionHead {
  const AttentionCall& call;
  int64_t b, h;
  const std::vector<int32_t>& attended;

  AttentionHead(const AttentionCall& c, int64_t entry, int64_t head)
      : call(c), b(entry), h(head), attended(c.attended[static_cast<size_t>(b)]) {}
  int64_t count() const { return static_cast<int64_t>(attended.size()); }
  int64_t step() const { return call.heads * call.width; }  // elements between rows
  template <class T>
  T* of(T* data, int64_t length) const {
    return data + (b * length * call.heads + h) * call.width;
  }
  template <class C>
  C* sums(const Tensor& log_sums) const {
    return log_sums.data<C>() + (b * call.heads + h) * call.queries;
  }

  // The draws of query i for n attended keys from `first` on; `words` is memory for them.
  const uint32_t* dropout_words(int64_t i, int64_t first, int64_t n, std::vector<uint32_t>& words) const {
    const int32_t* key = attended.data() + first;
    const int64_t row = ((b * call.heads + h) * call.queries + i) * call.keys, span = key[n - 1] - key[0] + 1;
    words.resize(static_cast<size_t>(span + kRandomSlack));
    const uint32_t* word = random_words(call.rng, row + key[0], span, words.data());
    if (span == n) return word;
    for (int64_t j = 0; j < n; ++j) words[static_cast<size_t>(j)] = word[key[j] - key[0]];
    return words.data();
  }
};

// The heads [begin, end), counted through all batch entries before the next head, so that threads share long and short
// entries alike; those of one entry, whose rows are neighbours, run after one another.
template <class F>
void for_heads(const AttentionCall& call, int64_t begin, int64_t end, const F& run) {
  for (int64_t b = 0; b < call.batch; ++b)
    for (int64_t h = 0; h < call.heads; ++h) {
      const int64_t unit = h * call.batch + b;
      if (begin <= unit && unit < end) run(AttentionHead(call, b, h));
    }
}

}  // namespace godwit
