// Creates IDX files and gzip data for the data tests.
#pragma once
#include "tests/support.h"

namespace godwit::data {

Bytes idx_bytes(const std::vector<uint32_t>& extents, const Bytes& values);
Bytes gzip(const Bytes& bytes);

}  // namespace godwit::data
