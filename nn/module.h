// Module: a part of a model with parameters, buffers and named children.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/buckets/bucket.h"

// Modules and layers, initializers, weight files.
namespace godwit::nn {

// A buffer and its name.
struct NamedTensor {
  std::string name;  // names of the modules and the buffer, joined by dots
  Tensor tensor;     // shares the memory of the buffer
};

// Children are data members that are registered with add(). Not copyable, not movable.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  std::vector<Parameter> parameters() const;          // in order of registration; names are joined by dots
  std::vector<NamedTensor> buffers() const;           // buffers, such as the running statistics of batch norm
  void train(bool on = true);                         // sets the mode of this module and all descendants
  bool training() const { return training_; }         // the mode; initially true
  void visit(const std::function<void(Module&)>& f);  // visits this module and all descendants

 protected:
  // The names of parameters, buffers and children must differ; a name that occurs twice is an error.
  // Registers a parameter and returns it. decay: whether weight decay applies.
  Var add_parameter(std::string name, Tensor value, bool decay = true);
  // All elements have the value `value`. Within DeferParameters, no memory is allocated.
  Var add_parameter(std::string name, Shape shape, DType dtype, bool decay = true, double value = 0,
                    FileLayout layout = FileLayout::as_in_memory);
  Tensor add_buffer(std::string name, Tensor value);  // registers a buffer and returns it
  // Registers a child, which must outlive this module. Throws if the child is or contains this module.
  void add(std::string name, Module& child);

 private:
  Var add_parameter(std::string name, Var var, bool decay, FileLayout layout);
  void check_new(const std::string& name) const;
  void collect(const std::string& prefix, std::vector<Parameter>* parameters, std::vector<NamedTensor>* buffers) const;

  struct Entry {  // one list, to keep the registration order of parameters and children
    std::string name;
    Var var = {};
    bool decay = true;
    FileLayout layout = FileLayout::as_in_memory;
    Tensor buffer = {};
    Module* child = nullptr;
  };
  std::vector<Entry> entries_;
  bool training_ = true;
};

// While an object of this type exists, parameters of modules that the calling thread constructs are deferred
// (Leaf::deferred()). Initializers and loaded files set functions that compute the values. DataParallel computes only
// the values that a rank keeps.
class DeferParameters {
 public:
  explicit DeferParameters(bool on = true);  // false: no effect
  ~DeferParameters();
  DeferParameters(const DeferParameters&) = delete;
  DeferParameters& operator=(const DeferParameters&) = delete;

 private:
  bool before_;
};

// Sets the values of a parameter to values(), which must have the parameter's type and number of elements. If the
// parameter is deferred, values() is called only when the values are needed.
void set_values(const Var& parameter, const std::function<Tensor()>& values);

}  // namespace godwit::nn
