// Data shared by the heads of an attention call, and the memory layout of each head. Only attention*.cpp includes this
// header.
#pragma once
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "autograd/ops/attention/attention.h"
#include "engine/context.h"
#include "engine/random_words.h"

namespace godwit {

// Data shared by all heads of a call.
struct AttentionCall {
  int64_t batch, queries, keys, heads, width;  // extents of q
  int64_t kv_heads;                            // heads of k and v
  int64_t query_stride, key_stride;            // row strides of q, and of k and v
  double scale;  // factor applied to the scores
  const AttentionOptions& options;  // options of the call
  RngKey rng;  // key of the dropout's random numbers
  int32_t dropped;                             // a probability is dropped if its 24 random bits are below this value
  std::vector<std::vector<int32_t>> attended;  // per batch entry: the unmasked keys
  std::shared_ptr<Pool> pool;  // memory pool of the calling thread's context
  int64_t group() const { return heads / kv_heads; }  // number of consecutive query heads that share a head of k and v
  // Minimum number of units per thread. A unit is `unit` query heads.
  int64_t grain(int64_t unit) const { return std::max<int64_t>(1, (1 << 18) / (unit * queries * keys * width)); }

  // Collects the unmasked keys of each batch entry.
  AttentionCall(const AttentionTensors& t, const AttentionOptions& o)
      : batch(t.q.dim(0)),
        queries(t.q.dim(1)),
        keys(t.k.dim(1)),
        heads(t.q.dim(2)),
        width(t.q.dim(3)),
        kv_heads(t.k.dim(2)),
        query_stride(t.stride > 0 ? t.stride : heads * width),
        key_stride(t.stride > 0 ? t.stride : kv_heads * width),
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

// One query head of one batch entry, with its head of k and v.
struct AttentionHead {
  const AttentionCall& call;             // the call of the head
  int64_t b, h;                          // index of the batch entry, and of the head in this entry
  const std::vector<int32_t>& attended;  // the batch entry's unmasked keys

  // Head number `head` of batch entry number `entry`.
  AttentionHead(const AttentionCall& c, int64_t entry, int64_t head)
      : call(c), b(entry), h(head), attended(c.attended[static_cast<size_t>(b)]) {}
  int64_t count() const { return static_cast<int64_t>(attended.size()); }  // number of unmasked keys
  // Number of unmasked keys that query i attends. These keys come first in `attended`.
  int64_t seen(int64_t i) const { return call.options.causal ? i + call.keys - call.queries + 1 : count(); }
  // The first query, rounded down to a multiple of `block`, that attends key number `key` of `attended`.
  int64_t first_query(int64_t key, int64_t block) const {
    return call.options.causal ? std::max<int64_t>(0, key - call.keys + call.queries) / block * block : 0;
  }
  // Number of keys in [first, first + n) that query i attends. These keys come first.
  int64_t seen_of(int64_t i, int64_t first, int64_t n) const { return std::clamp<int64_t>(seen(i) - first, 0, n); }
  int64_t member() const { return h % call.group(); }  // index among the query heads of one head of k and v
  int64_t result_stride() const { return call.heads * call.width; }  // row stride of the result
  // The head's first row in q or its gradient.
  template <class T>
  T* queries_of(T* data) const {
    return data + b * call.queries * call.query_stride + h * call.width;
  }
  // The first row of the head's keys in k, v or their gradients.
  template <class T>
  T* keys_of(T* data) const {
    return data + b * call.keys * call.key_stride + h / call.group() * call.width;
  }
  // The head's first row in the result or its gradient.
  template <class T>
  T* results_of(T* data) const {
    return data + b * call.queries * result_stride() + h * call.width;
  }
  // The head's row in log_sums.
  template <class C>
  C* sums(const Tensor& log_sums) const {
    return log_sums.data<C>() + (b * call.heads + h) * call.queries;
  }

  // The random words of query i for n attended keys, starting at key number `first`. `words` is scratch memory.
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

// Calls run() for heads [begin, end) in units of `unit` consecutive heads. In the numbering of the units, the batch
// entry varies fastest, so that each thread gets both long and short entries. The heads of one entry have adjacent rows
// in memory and run consecutively.
template <class F>
void for_heads(const AttentionCall& call, int64_t unit, int64_t begin, int64_t end, const F& run) {
  for (int64_t b = 0; b < call.batch; ++b)
    for (int64_t h = 0; h < call.heads; ++h) {
      const int64_t number = h / unit * call.batch + b;
      if (begin <= number && number < end) run(AttentionHead(call, b, h));
    }
}

}  // namespace godwit
