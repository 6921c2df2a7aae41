// Emulates engine/cuda/tensor_cores.h with exchanges between the fibers of a warp.
#pragma once
#include <cstring>

#include "cuda_runtime.h"
#include "engine/half.h"

namespace godwit {

inline float half_of_word(uint32_t word, int half) {
  return detail::bf16_value(static_cast<uint16_t>(word >> 16 * half));
}

inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Words {
    uint32_t a[4], b[2];
  };
  const unsigned g = emulated::lane() / 4, t = emulated::lane() % 4;
  Words of_row[4], of_column[2][4];  // words of the lanes that hold rows g and g + 8, and columns 2t and 2t + 1
  emulated::share(Words{{a[0], a[1], a[2], a[3]}, {b0, b1}}, [&](const auto& of_lane) {
    for (unsigned i = 0; i < 4; ++i) {
      of_row[i] = of_lane(4 * g + i);
      for (unsigned c = 0; c < 2; ++c) of_column[c][i] = of_lane(4 * (2 * t + c) + i);
    }
  });
  for (int r = 0; r < 2; ++r)
    for (int c = 0; c < 2; ++c)
      for (int k = 0; k < 16; ++k)
        d[2 * r + c] += half_of_word(of_row[k % 8 / 2].a[r + 2 * (k / 8)], k % 2) *
                        half_of_word(of_column[c][k % 8 / 2].b[k / 8], k % 2);
}

inline void load_matrices(uint32_t (&words)[4], const void* row) {
  const unsigned g = emulated::lane() / 4, t = emulated::lane() % 4;
  emulated::share(row, [&](const auto& of_lane) {
    for (unsigned m = 0; m < 4; ++m)
      std::memcpy(&words[m], static_cast<const std::byte*>(of_lane(8 * m + g)) + 4 * t, 4);
  });
}

inline void load_transposes(uint32_t (&words)[4], const void* row) {
  const unsigned g = emulated::lane() / 4, t = emulated::lane() % 4;
  emulated::share(row, [&](const auto& of_lane) {
    for (unsigned m = 0; m < 4; ++m)
      for (unsigned i = 0; i < 2; ++i)
        std::memcpy(reinterpret_cast<std::byte*>(&words[m]) + 2 * i,
                    static_cast<const std::byte*>(of_lane(8 * m + 2 * t + i)) + 2 * g, 2);
  });
}

inline void copy_async(void* to, const void* from, bool there) {
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0)
    emulated::stop("an asynchronous copy is not aligned to 16 bytes");
  emulated::start_copy(to, there ? from : nullptr);
}
inline void await_copies() { emulated::await_copies(); }

inline uint32_t pack_bf16(float first, float second) {
  return detail::bf16_bits(first) | static_cast<uint32_t>(detail::bf16_bits(second)) << 16;
}

}  // namespace godwit
