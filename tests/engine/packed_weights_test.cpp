#include "engine/packed_weights.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <bit>
#include <cstring>
#include <limits>

#include "engine/context.h"
#include "engine/half.h"
#include "engine/philox.h"

using namespace godwit;

namespace packed_weights_test {

// Random numbers, midpoints between two bfloat16 values, and non-finite values.
Tensor some_weights(int64_t rows, int64_t columns) {
  const Tensor w({rows, columns});
  RandomStream random(1, Purpose::test);
  for (float& value : w.span<float>()) value = static_cast<float>(random.normal());
  const float special[] = {0x1.01p0f,
                           0x1.03p0f,
                           -0.f,
                           0x1p-140f,
                           std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN(),
                           std::numeric_limits<float>::max(),
                           std::bit_cast<float>(0x7F800001u)};
  for (size_t i = 0; i < std::size(special); ++i) w.data<float>()[i * 37 % static_cast<size_t>(w.numel())] = special[i];
  return w;
}

TEST(PackedWeights, PackingPlacesEveryValueCorrectlyOnEveryInstructionSet) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{32, 64}, {96, 192}, {64, 1280}, {77, 145}, {5, 3}})
      for (const bool transposed : {false, true})
        for (const int threads : {1, 2}) {
          const ContextGuard guard([&](Context& next) { next.threads = threads; });
          const Tensor w = transposed ? some_weights(columns, rows) : some_weights(rows, columns);
          const int64_t high = (rows + 31) / 32 * 32, low = (rows + 15) / 16 * 16, wide = (columns + 63) / 64 * 64;
          const Tensor single = Tensor::full({low * wide}, 7), half = Tensor::full({high * wide}, 7, DType::bf16);
          pack_weights(Cpu{}, {w}, transposed, rows, columns, DType::f32, single.raw());
          pack_weights(Cpu{}, {w}, transposed, rows, columns, DType::bf16, half.raw());
          for (int64_t r = 0; r < high; ++r)
            for (int64_t c = 0; c < wide; ++c) {
              const bool inside = r < rows && c < columns;
              const float value = inside ? w.data<float>()[transposed ? c * rows + r : r * columns + c] : 0;
              const int64_t in_single = (c / 64 * (low / 16) + r / 16) * 1024 + r % 16 * 64 + c % 64;
              const int64_t in_half = (c / 64 * (high / 32) + r / 32) * 2048 + r % 32 / 2 * 128 + c % 64 * 2 + r % 2;
              if (r < low) {
                ASSERT_EQ(std::bit_cast<uint32_t>(single.data<float>()[in_single]), std::bit_cast<uint32_t>(value));
              }
              ASSERT_EQ(half.data<bf16>()[in_half].bits, bf16(value).bits) << hwy::TargetName(target) << " " << value;
            }
        }
  }
  hwy::SetSupportedTargetsForTest(0);
}

// The parts are the first 64 rows as stored, the next 128, and the others.
TEST(PackedWeights, PartsArePackedLikeOneMatrix) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const bool transposed : {false, true})
      for (const int64_t stored_rows : {256, 201}) {
        const int64_t stored_columns = 77;
        const Tensor w = some_weights(stored_rows, stored_columns);
        const std::vector<Tensor> parts{w.rows(0, 64).clone(), w.rows(64, 128).clone(),
                                        w.rows(192, stored_rows - 192).clone()};
        const int64_t rows = transposed ? stored_columns : stored_rows, columns = w.numel() / rows;
        const Tensor one = Tensor::full({512 * 512}, 7, type), several = one.clone();
        pack_weights(Cpu{}, {w}, transposed, rows, columns, type, one.raw());
        pack_weights(Cpu{}, parts, transposed, rows, columns, type, several.raw());
        EXPECT_EQ(std::memcmp(one.raw(), several.raw(), static_cast<size_t>(one.bytes())), 0) << type << transposed;
        if (stored_rows % 64 == 0) continue;
        EXPECT_THROW(pack_weights(Cpu{}, {parts[2], parts[0], parts[1]}, transposed, rows, columns, type, one.raw()),
                     Error);
      }
}

TEST(PackedWeights, NamesWeightsThatDoNotFit) {
  const Tensor w({16, 64}), to({16, 64});
  EXPECT_THROW(pack_weights(Cpu{}, {w}, false, 16, 64, DType::f64, to.raw()), Error);
  EXPECT_THROW(pack_weights(Cpu{}, {w}, false, 32, 64, DType::f32, to.raw()), Error);
}

}  // namespace packed_weights_test
