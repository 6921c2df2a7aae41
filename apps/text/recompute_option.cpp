#include "apps/text/recompute_option.h"

#include <charconv>

#include "engine/excerpt.h"

namespace godwit::apps {
namespace {

void check_recompute(const std::string& text, const std::string& subject) {
  int64_t layers = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), layers);
  const bool number = error == std::errc() && end == text.data() + text.size() && layers >= 0;
  check(number || text == "true" || text == "false", subject, " expects true, false or a number of layers, got '",
        excerpt(text), "'");
}

}  // namespace

void add_recompute(OptionList& list, std::string& recompute) {
  list.add("recompute", recompute,
           "number of first layers that keep only their input and are recomputed in the backward pass; true: all "
           "layers; false: none; "
           "saves memory, takes more time, and leaves gradients unchanged")
      .or_number()
      .check_text = check_recompute;
}

int64_t recomputed_layers(const std::string& recompute, int64_t layers) {
  if (recompute == "false") return 0;
  if (recompute == "true") return layers;
  const int64_t count = std::stoll(recompute);
  check(count <= layers, "model.recompute is ", count, ", but the network has ", layers,
        layers == 1 ? " layer" : " layers", "; use true for all of them");
  return count;
}

}  // namespace godwit::apps
