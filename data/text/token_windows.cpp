#include "data/text/token_windows.h"

#include <algorithm>

#include "engine/check.h"

namespace godwit::data {

TokenWindows::TokenWindows(std::span<const int32_t> tokens, const TokenWindowOptions& o)
    : tokens_(tokens), length_(o.length) {
  check(o.length >= 1 && o.streams >= 1, "token windows: length and streams must be at least 1, got ", o.length,
        " and ", o.streams);
  check(o.world >= 1 && o.rank >= 0 && o.rank < o.world, "token windows: rank ", o.rank, " is not in [0, ", o.world,
        ")");
  const int64_t count = std::ssize(tokens);
  if (o.train) {
    const int64_t all = o.streams * o.world, part = count / all;
    check(part > o.length, "the text has ", count, " tokens, ", part, " for each of ", all, " streams (", o.world,
          o.world == 1 ? " worker × " : " workers × ", o.streams, "); a window of ", o.length, " tokens needs ",
          o.length + 1);
    for (int64_t i = 0; i < o.streams; ++i) streams_.push_back({(o.rank * o.streams + i) * part, part - 1});
  } else {
    check(count >= 2, "the text has ", count, count == 1 ? " token" : " tokens", "; an evaluation needs 2");
    const int64_t all = std::min(o.streams, count - 1);
    const auto begin = [&](int64_t stream) { return stream * (count - 1) / all; };
    for (int64_t i = all * o.rank / o.world; i < all * (o.rank + 1) / o.world; ++i)
      streams_.push_back({begin(i), begin(i + 1) - begin(i)});
  }
  for (const Stream& stream : streams_) {
    longest_ = std::max(longest_, stream.predictions);
    predictions_ += stream.predictions;
  }
  windows_ = (longest_ + length_ - 1) / length_;
}

void TokenWindows::start(int64_t window) {
  check(window >= 0 && window <= windows_, "token windows: cannot start at window ", window, " of ", windows_);
  next_ = window;
}

std::optional<TokenWindow> TokenWindows::next() {
  if (next_ == windows_) return std::nullopt;
  const int64_t first = next_++ * length_, time = std::min(length_, longest_ - first), width = streams();
  TokenWindow window{.ids = Tensor({time, width}, DType::i32, kCpu),
                     .labels = Tensor({time * width}, DType::i32, kCpu)};
  int32_t *ids = window.ids.data<int32_t>(), *labels = window.labels.data<int32_t>();
  for (int64_t s = 0; s < width; ++s) {
    const Stream& stream = streams_[static_cast<size_t>(s)];
    for (int64_t t = 0; t < time; ++t) {
      const bool inside = first + t < stream.predictions;
      const auto at = static_cast<size_t>(stream.begin + first + t);
      ids[t * width + s] = inside ? tokens_[at] : 0;
      labels[t * width + s] = inside ? tokens_[at + 1] : kNoLabel;
      window.predictions += inside;
    }
  }
  return window;
}

}  // namespace godwit::data
