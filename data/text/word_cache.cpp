#include "data/text/word_cache.h"

#include <bit>
#include <cstring>
#include <string>

namespace godwit::data {
namespace {

template <class Word>
uint64_t load(const char* from) {
  Word word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t hash = a * 0x9e3779b97f4a7c15u ^ b * 0xe7037ed1a0b428dbu;
  hash = (hash ^ hash >> 32) * 0x8ebc6af09c88c6e3u;
  return hash ^ hash >> 32;
}

constexpr size_t kMostProbes = 64;  // bounds the time of words whose hashes collide

}  // namespace

struct WordCache::Entry {
  uint64_t first, last;
  uint32_t size;
  std::vector<int32_t> ids;
  std::string word;  // empty up to 16 bytes
};

WordCache::WordCache(size_t words) : slots_(std::bit_ceil(2 * words)), left_(words) {}

WordCache::~WordCache() {
  for (const auto& slot : slots_) delete slot.load(std::memory_order_relaxed);
}

WordCache::Key WordCache::key_of(std::string_view word) {
  const char* begin = word.data();
  const size_t size = word.size();
  Key key{0, 0, size, 0};
  if (size >= 8) {
    key.first = load<uint64_t>(begin);
    key.last = load<uint64_t>(begin + size - 8);
  } else if (size >= 4) {
    key.first = load<uint32_t>(begin) << 32 | load<uint32_t>(begin + size - 4);
  } else {
    key.first = load<uint8_t>(begin) << 16 | load<uint8_t>(begin + size / 2) << 8 | load<uint8_t>(begin + size - 1);
  }
  key.hash = mix(key.first + size, key.last);
  for (size_t at = 8; at + 8 < size; at += 8) key.hash = mix(key.hash, load<uint64_t>(begin + at));
  return key;
}

std::span<const int32_t> WordCache::find(const Key& key, std::string_view word) const {
  for (size_t probe = 0; probe < kMostProbes; ++probe) {
    const Entry* entry = slots_[(key.hash + probe) & (slots_.size() - 1)].load(std::memory_order_acquire);
    if (entry == nullptr) return {};
    if (entry->first == key.first && entry->last == key.last && entry->size == key.size &&
        (key.size <= 16 || entry->word == word))
      return entry->ids;
  }
  return {};
}

void WordCache::add(const Key& key, std::string_view word, std::span<const int32_t> ids) {
  // Several threads may briefly decrease the counter below 0; each thread then restores its decrement.
  if (static_cast<int64_t>(left_.fetch_sub(1, std::memory_order_relaxed)) <= 0) {
    left_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  auto entry = std::make_unique<const Entry>(Entry{key.first,
                                                   key.last,
                                                   static_cast<uint32_t>(key.size),
                                                   {ids.begin(), ids.end()},
                                                   key.size <= 16 ? std::string() : std::string(word)});
  for (size_t probe = 0; probe < kMostProbes; ++probe) {
    const Entry* expected = nullptr;
    if (slots_[(key.hash + probe) & (slots_.size() - 1)].compare_exchange_strong(expected, entry.get(),
                                                                                 std::memory_order_acq_rel)) {
      entry.release();
      return;
    }
  }
  left_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace godwit::data
