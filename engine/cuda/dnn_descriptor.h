// DnnDescriptor: an owned descriptor of cuDNN's graph API.
#pragma once
#include <cudnn.h>

#include <array>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>

#include "engine/cuda/call.h"

namespace godwit {

// Error text with cuDNN's last reason on this thread: "cudnnBackendFinalize: CUDNN_STATUS_NOT_SUPPORTED (reason)".
inline std::string dnn_error(const char* call, cudnnStatus_t status) {
  std::array<char, 512> text{};
  cudnnGetLastErrorString(text.data(), text.size());
  return detail::concat(call, ": ", cudnnGetErrorString(status), " (", text.data(), ")");
}

// Thrown if cuDNN reports that it does not support a configuration. Callers then try another configuration.
struct DnnNotSupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Setting an attribute copies the value, including the contents of other descriptors. All functions throw
// DnnNotSupported if cuDNN does not support the configuration, and an Error for other failures.
class DnnDescriptor {
 public:
  DnnDescriptor() = default;  // empty
  explicit DnnDescriptor(cudnnBackendDescriptorType_t type) {
    library_check(cudnnBackendCreateDescriptor(type, &handle_), "cudnnBackendCreateDescriptor");
  }
  ~DnnDescriptor() {
    if (handle_) cudnnBackendDestroyDescriptor(handle_);
  }
  DnnDescriptor(DnnDescriptor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  DnnDescriptor& operator=(DnnDescriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  cudnnBackendDescriptor_t get() const { return handle_; }

  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set(name, type, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const DnnDescriptor& value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.handle_);
  }
  void set(cudnnBackendAttributeName_t name, std::initializer_list<int64_t> values) {
    set(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.begin());
  }
  void set(cudnnBackendAttributeName_t name, std::initializer_list<void*> values) {
    set(name, CUDNN_TYPE_VOID_PTR, static_cast<int64_t>(values.size()), values.begin());
  }
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, const void* values) {
    library_check(cudnnBackendSetAttribute(handle_, name, type, count, values), "cudnnBackendSetAttribute");
  }

  // Writes at most `room` elements to `to`. Returns the number of available elements.
  template <class T>
  int64_t read(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t room, T* to) const {
    int64_t count = 0;
    library_check(cudnnBackendGetAttribute(handle_, name, type, room, &count, to), "cudnnBackendGetAttribute");
    return count;
  }

  void finalize() { library_check(cudnnBackendFinalize(handle_), "cudnnBackendFinalize"); }
  // Like finalize(), but throws DnnNotSupported on every failure. For configurations that cuDNN may reject for any
  // reason. `name`: the descriptor, for the message.
  void finalize_if_supported(const char* name) {
    if (const auto status = cudnnBackendFinalize(handle_); status != CUDNN_STATUS_SUCCESS)
      throw DnnNotSupported(dnn_error(name, status));
  }

 private:
  static void library_check(cudnnStatus_t status, const char* call) {
    constexpr int kCategory = 1000;  // each category has a thousand codes
    if (status / kCategory == CUDNN_STATUS_NOT_SUPPORTED / kCategory) throw DnnNotSupported(dnn_error(call, status));
    cuda_check(status, call);
  }

  cudnnBackendDescriptor_t handle_ = nullptr;
};

}  // namespace godwit
