// Wire format for sign bits: 1 for +1, 0 for −1. Value j is bit j mod 32 (least significant first) of 32-bit word j /
// 32.
#pragma once
#include <cstdint>

#include "engine/tensor.h"

namespace godwit {

constexpr int64_t sign_words(int64_t n) { return (n + 31) / 32; }  // number of words for n signs

// Sets words[sign_words(n)]: bit 1 for x >= 0 (also −0.0). Unused bits of the last word are 0. The bit of NaN is 0, so
// check the values for NaN before the call.
void pack_signs(Cpu, const float* x, uint32_t* words, int64_t n);
void pack_signs(Cuda, const float* x, uint32_t* words, int64_t n);

// x[n] = +1 or −1.
void unpack_signs(Cpu, const uint32_t* words, float* x, int64_t n);
void unpack_signs(Cuda, const uint32_t* words, float* x, int64_t n);

// sum[n] = sum of ±1 over all senders = 2·(number of ones) − senders, 1 <= senders <= 32767. The words of sender s
// begin at words + s·stride.
void sum_signs(Cpu, const uint32_t* words, int64_t senders, int64_t stride, int16_t* sum, int64_t n);
void sum_signs(Cpu, const uint32_t* words, int64_t senders, int64_t stride, int32_t* sum, int64_t n);
void sum_signs(Cuda, const uint32_t* words, int64_t senders, int64_t stride, int16_t* sum, int64_t n);
void sum_signs(Cuda, const uint32_t* words, int64_t senders, int64_t stride, int32_t* sum, int64_t n);
inline void sum_signs(Cpu, const uint32_t* words, int64_t senders, int16_t* sum, int64_t n) {
  sum_signs(Cpu{}, words, senders, sign_words(n), sum, n);
}

// Sets votes[sign_words(n)]: 1 if at least half of the senders have a 1. Unused bits of the last word are 0.
void majority_signs(Cpu, const uint32_t* words, int64_t senders, uint32_t* votes, int64_t n);
void majority_signs(Cuda, const uint32_t* words, int64_t senders, uint32_t* votes, int64_t n);

}  // namespace godwit
