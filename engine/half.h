// bfloat16 and float16: storage types. Values convert implicitly to float for arithmetic. Casts to 16 bits round to
// nearest, ties to even.
#pragma once
#include <bit>
#include <cstdint>

namespace godwit {

namespace detail {

// Without branches, so that the compiler vectorizes loops over it.
constexpr uint16_t bf16_bits(float value) {
  const auto u = std::bit_cast<uint32_t>(value);
  const uint32_t nan = (u & 0x7FFFFFFFu) > 0x7F800000u ? ~0u : 0u;  // a 32-bit mask keeps loops vectorized
  const uint32_t rounded = u + ((0x7FFFu + ((u >> 16) & 1u)) & ~nan);
  return static_cast<uint16_t>((rounded | (nan & 0x400000u)) >> 16);
}

constexpr float bf16_value(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

constexpr uint16_t f16_bits(float value) {
  const auto whole = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (whole >> 16) & 0x8000u, u = whole & 0x7FFFFFFFu;
  // Normal range, at least 2^-14: rebias the exponent by 112 and round the mantissa to 10 bits. A carry may reach
  // infinity.
  const uint32_t normal = (u - (112u << 23) + 0xFFFu + ((u >> 13) & 1u)) >> 13;
  // Below 2^-14: adding 0.5 rounds the subnormal number and leaves its bits in the low mantissa.
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(u) + 0.5f) - 0x3F000000u;
  const uint32_t large = u > 0x7F800000u ? 0x7E00u : 0x7C00u;  // NaN, or overflow to infinity
  const uint32_t finite = u < 0x38800000u ? small : normal;
  return static_cast<uint16_t>(sign | (u >= 0x47800000u ? large : finite));
}

constexpr float f16_value(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16, u = bits & 0x7FFFu;
  const auto exact = std::bit_cast<float>(u << 13) * 0x1p112f;  // rebiases normal and subnormal numbers
  const uint32_t special = (u << 13) | 0x7F800000u;             // infinity and NaN
  return std::bit_cast<float>(sign | (u >= 0x7C00u ? special : std::bit_cast<uint32_t>(exact)));
}

}  // namespace detail

// bfloat16: sign, 8 bits of exponent, 7 bits of mantissa.
struct bf16 {
  uint16_t bits;  // representation
  bf16() = default;
  explicit constexpr bf16(float value) : bits(detail::bf16_bits(value)) {}  // rounded to nearest even
  constexpr operator float() const { return detail::bf16_value(bits); }     // exact
};

// float16 (IEEE binary16): sign, 5 bits of exponent, 10 bits of mantissa.
struct f16 {
  uint16_t bits;  // representation
  f16() = default;
  // Rounded to nearest even; overflow becomes infinity.
  explicit constexpr f16(float value) : bits(detail::f16_bits(value)) {}
  constexpr operator float() const { return detail::f16_value(bits); }  // exact
};

static_assert(sizeof(bf16) == 2 && sizeof(f16) == 2);

// The type in which a kernel computes: float for the 16-bit types, otherwise T.
template <class T>
struct ComputeType {
  using type = T;
};
template <> struct ComputeType<bf16> { using type = float; };
template <> struct ComputeType<f16> { using type = float; };
template <class T>
using compute_t = typename ComputeType<T>::type;  // see ComputeType

}  // namespace godwit
