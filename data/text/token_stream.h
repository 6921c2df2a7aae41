// TokenStream: a long sequence of token ids in memory or in memory-mapped files.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace godwit::data {

// A cheap handle. Copies share the tokens. Thread-safe.
class TokenStream {
 public:
  TokenStream() = default;                                   // no tokens
  explicit TokenStream(const std::vector<int32_t>& tokens);  // stores each id in 2 or 4 bytes; ids must not be negative
  // A stream over `count` ids of `width` bytes (2 or 4, unsigned) at `data`, which `owner` keeps alive. `name`: for
  // messages.
  TokenStream(std::shared_ptr<const void> owner, const void* data, int width, int64_t count, std::string name);

  int64_t size() const { return parts_.empty() ? 0 : parts_.back().begin + parts_.back().count; }  // number of tokens
  void append(const TokenStream& other);                        // appends the tokens of `other`
  TokenStream range(int64_t begin, int64_t end) const;          // tokens [begin, end)
  void limit(int64_t vocabulary) { vocabulary_ = vocabulary; }  // read() rejects ids >= `vocabulary`

  // Copies the tokens at [begin, begin + to.size()). Throws an Error that names file and position if an id is outside
  // the vocabulary.
  void read(int64_t begin, std::span<int32_t> to) const;
  void check_ids() const;  // reads all tokens; throws like read()
  // Hash for comparing the data of ranks. It covers the size, all tokens in memory, and the first and last 65,536
  // tokens of each file.
  uint64_t hash() const;

 private:
  struct Part {
    std::shared_ptr<const void> owner;
    const void* data;
    int width;      // bytes per id
    int64_t first;  // index of the first id in `data` that belongs to the stream
    int64_t count;  // number of ids
    int64_t begin;  // index of the part's first id in the stream
    std::string name;
    bool in_memory = false;  // false: in a file
  };
  std::vector<Part> parts_;
  int64_t vocabulary_ = int64_t{1} << 31;
};

}  // namespace godwit::data
