// CIFAR-10 and CIFAR-100, binary version: records of one or two label bytes and 3×32×32 bytes, channel by channel.
#pragma once
#include <string>

#include "data/image/raw_images.h"

namespace godwit::data {

// Reads data_batch_1.bin … data_batch_5.bin or test_batch.bin (CIFAR-10), or train.bin or test.bin (CIFAR-100, fine
// labels), depending on the files in the folder. Images are [32, 32, 3]. Throws one Error that names the file if it is
// missing, contains an incomplete record, or contains an invalid label.
RawImages load_cifar_folder(const std::string& folder, Split split);

}  // namespace godwit::data
