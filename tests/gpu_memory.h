// GPU memory for kernel tests. It is filled with random values and compared byte by byte.
#pragma once
#include <cmath>
#include <cstring>

#include "engine/philox.h"
#include "tests/on_gpu.h"

namespace godwit {

// Random values of many magnitudes, with zeros of both signs.
template <class T>
std::vector<T> random_values(int64_t n, uint32_t stream) {
  RandomStream random(11, Purpose::test, stream);
  std::vector<T> values(static_cast<size_t>(n));
  for (T& value : values) {
    value = static_cast<T>(random.normal() * std::pow(10, -8 * random.uniform()));
    if (random.below(8) == 0) value = random.below(2) ? T(0) : T(-0.0f);
  }
  return values;
}

inline std::vector<uint32_t> random_bits(int64_t words, uint32_t stream) {
  RandomStream random(12, Purpose::test, stream);
  std::vector<uint32_t> bits(static_cast<size_t>(words));
  for (uint32_t& word : bits) word = random.next();
  return bits;
}

// Random values of any type.
template <class T>
class There {
 public:
  explicit There(const std::vector<T>& here) : tensor_({static_cast<int64_t>(here.size() * sizeof(T))}, DType::u8) {
    set(here);
  }
  void set(const std::vector<T>& here) {
    std::vector<uint8_t> bytes(here.size() * sizeof(T));
    std::memcpy(bytes.data(), here.data(), bytes.size());
    tensor_.copy_from(Tensor::of(bytes, tensor_.shape()));
  }
  T* data() const { return reinterpret_cast<T*>(tensor_.cuda_data<uint8_t>()); }
  std::vector<T> here() const {
    const std::vector<uint8_t> bytes = tensor_.to_vector<uint8_t>();
    std::vector<T> result(bytes.size() / sizeof(T));
    std::memcpy(result.data(), bytes.data(), bytes.size());
    return result;
  }

 private:
  Tensor tensor_;
};

template <class T>
void expect_same(const There<T>& there, const std::vector<T>& expected, const char* what) {
  const std::vector<T> found = there.here();
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_EQ(std::memcmp(&found[i], &expected[i], sizeof(T)), 0)
        << what << ", value " << i << ": " << static_cast<double>(found[i]) << ", on the CPU "
        << static_cast<double>(expected[i]);
}

}  // namespace godwit
