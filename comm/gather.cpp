#include "comm/gather.h"

#include <algorithm>
#include <utility>

#include "comm/host_tensor.h"

namespace godwit {

std::vector<std::vector<uint8_t>> gather_bytes(Group& group, std::vector<uint8_t> own, std::string_view phase) {
  const Tensor lengths({group.size()}, DType::i64, kCpu);
  group.all_gather(cpu_tensor<int64_t>({static_cast<int64_t>(own.size())}), lengths, phase);
  const std::vector<int64_t> sizes = lengths.to_vector<int64_t>();
  const int64_t longest = *std::max_element(sizes.begin(), sizes.end());
  std::vector<std::vector<uint8_t>> parts(sizes.size());
  if (longest == 0) return parts;
  own.resize(static_cast<size_t>(longest));
  const Tensor all({group.size() * longest}, DType::u8, kCpu);
  group.all_gather(cpu_tensor(own), all, phase);
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    const uint8_t* part = all.data<uint8_t>() + static_cast<int64_t>(rank) * longest;
    parts[rank].assign(part, part + sizes[rank]);
  }
  return parts;
}

std::vector<std::vector<std::string>> gather_texts(Group& group, const std::vector<std::string>& own,
                                                   std::string_view phase) {
  std::vector<uint8_t> bytes;  // the texts, each followed by '\0'
  for (const std::string& text : own) bytes.insert(bytes.end(), text.c_str(), text.c_str() + text.size() + 1);
  std::vector<std::vector<std::string>> texts;
  for (const std::vector<uint8_t>& part : gather_bytes(group, std::move(bytes), phase)) {
    texts.emplace_back();
    for (auto begin = part.begin(); begin < part.end();) {
      const auto end = std::find(begin, part.end(), uint8_t{0});
      texts.back().emplace_back(begin, end);
      begin = end + 1;
    }
  }
  return texts;
}

}  // namespace godwit
