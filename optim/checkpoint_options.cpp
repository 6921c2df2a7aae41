#include "optim/checkpoint_options.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "engine/excerpt.h"

namespace godwit {
namespace {

struct Interval {
  int64_t steps = 0;
  double seconds = 0;
};

// "200" or "10min".
std::optional<Interval> read_interval(std::string text) {
  const bool minutes = text.ends_with("min");
  if (minutes) text.resize(text.size() - 3);
  if (text.ends_with(" ")) text.pop_back();
  double number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = std::floor(number) == number;
  if (error != std::errc() || end != text.data() + text.size() || !(number >= 0 && number <= 1e15) ||
      (!minutes && !whole))
    return {};
  return minutes ? Interval{.seconds = 60 * number} : Interval{.steps = std::llround(number)};
}

void check_interval(const std::string& text, const std::string& subject) {
  check(read_interval(text).has_value(), subject,
        " expects a number of steps such as 200, or of minutes such as 10min; got '", excerpt(text), "'");
}

}  // namespace

int64_t CheckpointOptions::steps() const { return read_interval(every).value_or(Interval()).steps; }
double CheckpointOptions::seconds() const { return read_interval(every).value_or(Interval()).seconds; }

bool lower_is_better(const std::string& figure) {
  return figure.ends_with("loss") || figure.ends_with("perplexity") || figure.ends_with("bits_per_byte");
}

void CheckpointOptions::describe(OptionList& list) {
  list.add("every", every,
           "steps between checkpoints, or minutes, such as 10min; 0: no checkpoint before the last step")
      .with_flag("--checkpoint-every", "N[min]")
      .or_number()
      .check_text = check_interval;
  list.add("at_end", at_end,
           "save a checkpoint after the last step; --resume can continue from it with more epochs or steps");
  list.add("keep", keep, "number of newest checkpoints to keep", kAtLeastOne);
  list.add("best", best,
           "also keep the checkpoint with the best value of this key of metrics.jsonl, such as test_top1; the best "
           "value of losses, perplexities and bits_per_byte is the lowest");
}

}  // namespace godwit
