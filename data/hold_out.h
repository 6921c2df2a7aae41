// Removes a part of the training samples for evaluation.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/check.h"
#include "engine/philox.h"

namespace godwit::data {

// Moves one sample of each group of `every` consecutive samples to the result. The choice is random, but equal in every
// run. Samples after the last whole group stay in `all`. A sample has `size` consecutive elements. If there are fewer
// than `every` samples, throws an Error that calls them `name`, and leaves `all` unchanged.
template <class T>
std::vector<T> hold_out(std::vector<T>& all, int64_t every, int64_t size = 1, const char* name = "training samples") {
  const int64_t samples = static_cast<int64_t>(all.size()) / size;
  check(samples >= every && every >= 2, "validation is ", every, ", but there are ", samples, " ", name,
        "; expected N from 2 to this number, to hold out one in N");
  std::vector<T> held;
  held.reserve(static_cast<size_t>(samples / every * size));
  auto kept = all.begin();
  for (int64_t i = 0; i < samples; ++i) {
    const auto begin = all.begin() + i * size, end = begin + size;
    const uint32_t chosen = random_word(0, i / every, 0, Purpose::shuffle, 0) % static_cast<uint32_t>(every);
    if (i % every == chosen && i / every < samples / every)
      held.insert(held.end(), std::make_move_iterator(begin), std::make_move_iterator(end));
    else kept = begin == kept ? end : std::move(begin, end, kept);
  }
  all.erase(kept, all.end());
  return held;
}

}  // namespace godwit::data
