#include "engine/check.h"
#include "engine/device.h"

namespace godwit {
namespace {

constexpr const char* kNone =
    "this build has no CUDA; use `cmake --preset cuda && cmake --build --preset cuda` and the programs in build/cuda";

}  // namespace

int cuda_devices() { return 0; }
std::string why_no_cuda() { return kNone; }
Cuda cuda_of(Device device) { fail("device ", device, ": ", kNone); }

namespace detail {
std::shared_ptr<CudaContext> make_cuda_context(int index, bool) { fail("device ", cuda_device(index), ": ", kNone); }
std::shared_ptr<Pool> cuda_pool(Device device) { fail("device ", device, ": ", kNone); }
void make_current(const CudaContext&) {}
void synchronize(const CudaContext&) {}
}  // namespace detail

}  // namespace godwit
