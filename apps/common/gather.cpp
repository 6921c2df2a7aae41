#include "apps/common/gather.h"

#include <algorithm>
#include <cstring>

namespace godwit::apps {

std::vector<std::vector<std::string>> gather_texts(Group& group, const std::vector<std::string>& own,
                                                   std::string_view phase) {
  std::vector<uint8_t> bytes;  // each text ends in a zero
  for (const std::string& text : own) bytes.insert(bytes.end(), text.c_str(), text.c_str() + text.size() + 1);
  const Tensor lengths({group.size()}, DType::i64);
  group.all_gather(Tensor::of<int64_t>({static_cast<int64_t>(bytes.size())}, {1}), lengths, phase);
  const std::vector<int64_t> sizes = lengths.to_vector<int64_t>();
  const int64_t longest = *std::max_element(sizes.begin(), sizes.end());
  std::vector<std::vector<std::string>> texts(sizes.size());
  if (longest == 0) return texts;
  bytes.resize(static_cast<size_t>(longest));
  const Tensor all({group.size() * longest}, DType::u8);
  group.all_gather(Tensor::of(bytes, {longest}), all, phase);
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    const char* text = reinterpret_cast<const char*>(all.data<uint8_t>()) + static_cast<int64_t>(rank) * longest;
    for (const char* end = text + sizes[rank]; text < end; text += std::strlen(text) + 1) texts[rank].push_back(text);
  }
  return texts;
}

}  // namespace godwit::apps
