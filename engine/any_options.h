// AnyOptions: the options struct of any method.
#pragma once
#include <memory>
#include <string>
#include <utility>

#include "engine/check.h"
#include "engine/options.h"

namespace godwit {

// Holds an options struct of any type, with value semantics. The struct has describe(OptionList&). It may have check(),
// which throws for contradictory values.
class AnyOptions {
 public:
  AnyOptions() = default;
  // Holds a copy of the struct.
  template <class O>
  requires requires(O& o, OptionList& list) { o.describe(list); }
  AnyOptions(O options) : held_(std::make_unique<Held<O>>(std::move(options))) {}
  AnyOptions(const AnyOptions& other) : held_(other.held_ ? other.held_->clone() : nullptr) {}  // copies the struct
  AnyOptions(AnyOptions&&) = default;
  // Copies or moves the struct.
  AnyOptions& operator=(AnyOptions other) { return held_ = std::move(other.held_), *this; }

  template <class O>
  bool holds() const {  // whether the struct is an O
    return dynamic_cast<const Held<O>*>(held_.get()) != nullptr;
  }
  // The struct. Throws if the struct is not an O.
  template <class O>
  O& as() {
    auto* held = dynamic_cast<Held<O>*>(held_.get());
    godwit::check(held != nullptr, "options: the requested type belongs to another method");
    return held->value;
  }
  template <class O>
  const O& as() const {
    return const_cast<AnyOptions*>(this)->as<O>();
  }
  OptionList list() const;                       // the struct's options; the list refers to this object
  void check(const std::string& subject) const;  // checks the values of all options, then calls the struct's check()

 private:
  struct Base {
    virtual ~Base() = default;
    virtual std::unique_ptr<Base> clone() const = 0;
    virtual void describe(OptionList& list) = 0;
    virtual void check() const = 0;
  };
  template <class O>
  struct Held : Base {
    explicit Held(O v) : value(std::move(v)) {}
    std::unique_ptr<Base> clone() const override { return std::make_unique<Held>(value); }
    void describe(OptionList& list) override { value.describe(list); }
    void check() const override {
      if constexpr (requires { value.check(); }) value.check();
    }
    O value;
  };
  std::unique_ptr<Base> held_;
};

}  // namespace godwit
