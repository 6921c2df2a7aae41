#include "engine/any_options.h"

namespace godwit {

OptionList AnyOptions::list() const {
  OptionList list;
  if (held_) held_->describe(list);
  return list;
}

void AnyOptions::check(const std::string& subject) const {
  for (const Option& option : list()) check_value(option, subject + ": " + option.name);
  if (held_) held_->check();
}

}  // namespace godwit
