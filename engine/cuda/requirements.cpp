#include "engine/cuda/requirements.h"

#include <cuda_runtime_api.h>

#include <charconv>

#include "engine/cuda/call.h"

namespace godwit {
namespace {

std::string text_of(int64_t version) {
  return detail::concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

std::string text_of_capability(int capability) { return detail::concat(capability / 10, ".", capability % 10); }

// "80" means machine code for 8.0 and later 8.x, and PTX, which the driver compiles for later capabilities. "80-real"
// is the machine code only, "80-virtual" the PTX only. "90a" runs on 9.0 only.
bool entry_runs_on(std::string_view entry, int capability) {
  int number = 0;
  const auto [rest, error] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
  if (error != std::errc()) return true;
  const std::string_view kind(rest, static_cast<size_t>(entry.data() + entry.size() - rest));
  if (kind.starts_with("a")) return number == capability;
  const bool code = capability / 10 == number / 10 && capability >= number;
  if (kind == "-real" || kind.starts_with("f")) return code;
  return capability >= number;
}

int attribute(cudaDeviceAttr name, int index) {
  int value = 0;
  cuda_check(cudaDeviceGetAttribute(&value, name, index), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace

void check_version(const char* library, int64_t loaded, int64_t built) {
  check(loaded / 100 >= built / 100, library, " ", text_of(loaded), " was loaded, but this build needs ",
        text_of(built), " or newer; update ", library, ", remove the older one from LD_LIBRARY_PATH, or build again");
}

bool runs_on(std::string_view architectures, int capability) {
  for (;;) {
    const size_t end = architectures.find(',');
    if (entry_runs_on(architectures.substr(0, end), capability)) return true;
    if (end == std::string_view::npos) return false;
    architectures.remove_prefix(end + 1);
  }
}

constexpr int kLowestCapability = 80;  // bfloat16 instructions of the kernels

void open_gpu(int index) {
  const Device device = cuda_device(index);
  check_usable(device);
  const int capability =
      10 * attribute(cudaDevAttrComputeCapabilityMajor, index) + attribute(cudaDevAttrComputeCapabilityMinor, index);
  check(capability >= kLowestCapability, device, " has compute capability ", text_of_capability(capability),
        "; Godwit needs 8.0 (Ampere) or newer; use another GPU or the CPU (--device)");
  check(runs_on(GODWIT_CUDA_ARCHITECTURES, capability), device, " has compute capability ",
        text_of_capability(capability), ", but this build has kernels for ", GODWIT_CUDA_ARCHITECTURES,
        " only; build with -D CMAKE_CUDA_ARCHITECTURES=", capability, ", or use another GPU (--device)");
  const cudaError_t status = cudaSetDevice(index);
  check(status != cudaErrorDevicesUnavailable, device,
        " is used by another process, and its compute mode allows only one; use another GPU (--device cuda:N or "
        "CUDA_VISIBLE_DEVICES), or let processes share it with nvidia-smi -c DEFAULT");
  cuda_check(status, "cudaSetDevice");
}

std::string memory_advice() {
  size_t free_bytes = 0, total = 0;
  int index = 0;
  if (cudaGetDevice(&index) != cudaSuccess || cudaMemGetInfo(&free_bytes, &total) != cudaSuccess) return "";
  return detail::concat("; ", free_bytes, " bytes of ", total, " are free on ", cuda_device(index),
                        "; lower --batch or the number of ranks on this GPU, or end other programs that use it");
}

}  // namespace godwit
