#include "engine/device.h"

#include <charconv>

#include "engine/check.h"
#include "engine/excerpt.h"

namespace godwit {

std::ostream& operator<<(std::ostream& out, Device device) {
  return device.is_cuda() ? out << "cuda:" << device.index : out << "cpu";
}

Device parse_device(const std::string& text, const std::string& subject, int local_rank) {
  if (text == "cpu") return kCpu;
  if (text == "cuda") return cuda_device(local_rank);
  if (text == "auto") return cuda_devices() > 0 ? cuda_device(local_rank) : kCpu;
  const std::string prefix = "cuda:";
  if (text.starts_with(prefix)) {
    int index = -1;
    const char *begin = text.data() + prefix.size(), *end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(begin, end, index);
    if (error == std::errc() && stop == end && index >= 0) return cuda_device(index);
  }
  fail(subject, ": unknown device '", excerpt(text), "'; expected cpu, cuda, cuda:N (N starts at 0) or auto");
}

void check_device(const std::string& text, const std::string& subject) {
  check(!parse_device(text, subject).is_cuda() || cuda_devices() > 0, subject, ": '", text,
        "' is not available: ", why_no_cuda());
}

void check_usable(Device device) {
  if (!device.is_cuda()) return;
  const int count = cuda_devices();
  check(count > 0, device, ": ", why_no_cuda());
  check(device.index < count, device, ": there ", count == 1 ? "is 1 GPU" : detail::concat("are ", count, " GPUs"),
        " here, numbered from 0");
}

}  // namespace godwit
