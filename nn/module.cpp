#include "nn/module.h"

#include "autograd/leaf.h"

namespace godwit::nn {

std::vector<Parameter> Module::parameters() const {
  std::vector<Parameter> result;
  collect("", &result, nullptr);
  return result;
}

std::vector<NamedTensor> Module::buffers() const {
  std::vector<NamedTensor> result;
  collect("", nullptr, &result);
  return result;
}

void Module::train(bool on) {
  training_ = on;
  for (Entry& entry : entries_)
    if (entry.child) entry.child->train(on);
}

void Module::visit(const std::function<void(Module&)>& f) {
  f(*this);
  for (Entry& entry : entries_)
    if (entry.child) entry.child->visit(f);
}

namespace {
thread_local bool defers = false;
}  // namespace

DeferParameters::DeferParameters(bool on) : before_(defers) { defers = before_ || on; }
DeferParameters::~DeferParameters() { defers = before_; }

void set_values(const Var& parameter, const std::function<Tensor()>& values) {
  if (!Leaf(parameter).is_deferred()) return parameter.value().copy_from(values());
  Leaf(parameter).defer([values, numel = parameter.shape().numel()](const Tensor& part, int64_t begin) {
    part.copy_from(values().view({numel}).range(begin, part.numel()));
  });
}

Var Module::add_parameter(std::string name, Tensor value, bool decay) {
  return add_parameter(std::move(name), Var(std::move(value), /*requires_grad=*/true), decay, FileLayout::as_in_memory);
}

Var Module::add_parameter(std::string name, Shape shape, DType dtype, bool decay, double value,
                          FileLayout layout) {
  const auto fill = [value](const Tensor& part, int64_t) { part.fill(value); };
  const Var var = defers ? Leaf::deferred(shape, dtype, fill) : Var(Tensor::full(shape, value, dtype), true);
  return add_parameter(std::move(name), var, decay, layout);
}

Var Module::add_parameter(std::string name, Var var, bool decay, FileLayout layout) {
  check_new(name);
  entries_.push_back({.name = std::move(name), .var = var, .decay = decay, .layout = layout});
  return var;
}

Tensor Module::add_buffer(std::string name, Tensor value) {
  check_new(name);
  entries_.push_back({.name = std::move(name), .buffer = value});
  return value;
}

void Module::add(std::string name, Module& child) {
  check_new(name);
  child.visit([&](const Module& below) { check(&below != this, "module: '", name, "' contains this module"); });
  entries_.push_back({.name = std::move(name), .child = &child});
}

void Module::check_new(const std::string& name) const {
  for (const Entry& entry : entries_) check(entry.name != name, "module: the name '", name, "' occurs twice");
}

void Module::collect(const std::string& prefix, std::vector<Parameter>* parameters,
                     std::vector<NamedTensor>* buffers) const {
  for (const Entry& entry : entries_) {
    const std::string name = prefix + entry.name;
    if (entry.child) entry.child->collect(name + ".", parameters, buffers);
    else if (entry.buffer.defined() && buffers) buffers->push_back({name, entry.buffer});
    else if (entry.var.defined() && parameters) parameters->push_back({name, entry.var, entry.decay, entry.layout});
  }
}

}  // namespace godwit::nn
