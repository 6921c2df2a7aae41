// Options for the sizes of buckets.
#pragma once
#include <string>

#include "comm/buckets/bucket.h"
#include "engine/options.h"

namespace godwit {

struct BucketSizeOptions {
  double first_mib = 1;    // size of the first bucket
  std::string mib = "25";  // size of the others: a number, or auto, which a training program replaces by a number

  void describe(OptionList& list);  // adds the options
  BucketOptions sizes() const;      // sizes in bytes; `mib` must be a number
};

}  // namespace godwit
