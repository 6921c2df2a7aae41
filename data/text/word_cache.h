// WordCache: the token ids of words, shared by all threads.
#pragma once
#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace godwit::data {

// A hash table that only grows. Lookups need no lock. Thread-safe.
class WordCache {
 public:
  static constexpr size_t kLongest = 64;  // maximum size of a cached word, in bytes

  // Reserves room for about `words` words. When the cache is full, add() has no effect.
  explicit WordCache(size_t words);
  ~WordCache();
  WordCache(const WordCache&) = delete;
  WordCache& operator=(const WordCache&) = delete;

  // The hash and the bytes of a word. Words of at most 16 bytes are equal if their `first`, `last` and `size` are
  // equal.
  struct Key {
    uint64_t first, last;  // overlapping loads
    size_t size;           // number of bytes of the word
    uint64_t hash;         // hash of all bytes
  };
  static Key key_of(std::string_view word);  // requires 1 to kLongest bytes

  // Returns the ids of a word; empty if the word is not in the cache.
  std::span<const int32_t> find(const Key& key, std::string_view word) const;
  // Adds a word that is not in the cache. No effect if the cache is full, or full near the word's hash.
  void add(const Key& key, std::string_view word, std::span<const int32_t> ids);

 private:
  struct Entry;
  std::vector<std::atomic<const Entry*>> slots_;  // open addressing, at most half full
  std::atomic<size_t> left_;                      // number of words that may be added
};

}  // namespace godwit::data
