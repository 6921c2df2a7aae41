#include "data/text/squad_features.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/check.h"
#include "engine/hash.h"

namespace godwit::data {
namespace {

struct Span {
  int32_t first, last;  // tokens
};

// The tokens that contain bytes [begin, end) of the context; none if these bytes are only spaces or removed characters.
std::optional<Span> tokens_of(const std::vector<Token>& tokens, int64_t begin, int64_t end) {
  std::optional<Span> span;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].end <= begin || tokens[i].begin >= end) continue;
    if (!span) span = {static_cast<int32_t>(i), 0};
    span->last = static_cast<int32_t>(i);
  }
  return span;
}

// The tokens of the first usable answer.
std::optional<Span> answer_of(const SquadQuestion& question, const std::vector<Token>& tokens) {
  for (const SquadAnswer& answer : question.answers) {
    if (!answer.usable()) continue;
    if (auto span = tokens_of(tokens, answer.begin, answer.begin + std::ssize(answer.text))) return span;
  }
  return std::nullopt;
}

void check_options(const SquadOptions& options) {
  check(options.max_question >= 1, "squad: max_question ", options.max_question, ", expected at least 1 token");
  check(options.stride >= 1, "squad: doc_stride ", options.stride, ", expected at least 1 token");
  check(options.length > options.max_question + 3, "squad: a length of ", options.length,
        " tokens leaves no room for the context after a question of ", options.max_question, " and 3 special tokens");
}

}  // namespace

SquadFeatures::SquadFeatures(const Squad& squad, const WordPiece& tokenizer, SquadOptions options)
    : squad_(squad),
      length_(options.length),
      pad_(tokenizer.vocabulary().pad()),
      cls_(tokenizer.vocabulary().cls()),
      sep_(tokenizer.vocabulary().sep()),
      contexts_(squad.contexts.size()),
      questions_(squad.questions.size()) {
  check_options(options);
  // A work item is a context with its questions, which are consecutive.
  std::vector<int64_t> first(squad.contexts.size() + 1, 0);
  for (const SquadQuestion& question : squad.questions) ++first[question.context + 1];
  for (size_t c = 0; c < squad.contexts.size(); ++c) first[c + 1] += first[c];
  std::vector<std::vector<Window>> windows(squad.questions.size());
  const auto work = [&](int64_t c) {
    const auto at = static_cast<size_t>(c);
    contexts_[at] = tokenizer.encode(squad.contexts[at]);
    contexts_[at].shrink_to_fit();
    for (int64_t q = first[at]; q < first[at + 1]; ++q) {
      Question question = prepare(tokenizer, q, options);
      questions_[static_cast<size_t>(q)] = std::move(question.ids);
      windows[static_cast<size_t>(q)] = std::move(question.windows);
    }
  };
  parallel_for_each(std::ssize(squad.contexts), options.threads, work, options.progress);

  Hash hash;
  for (const int64_t value : {options.length, options.stride, options.max_question})
    hash.add(static_cast<uint64_t>(value));
  for (size_t q = 0; q < windows.size(); ++q) {
    if (windows[q].empty()) ++left_out_;
    for (const Window& w : windows[q]) {
      windows_.push_back(w);
      for (const int32_t value : {w.question, w.first, w.count, w.start, w.end}) hash.add(static_cast<uint64_t>(value));
    }
    std::vector<Window>().swap(windows[q]);
    for (const int32_t id : questions_[q]) hash.add(static_cast<uint64_t>(id));
    first_window_.push_back(size());
  }
  for (const auto& context : contexts_)
    for (const Token& token : context) hash.add(static_cast<uint64_t>(token.id));
  hash_ = hash.value();
  check(size() > 0, "squad: none of ", squad.questions.size(),
        " questions is usable: no answer is at the position given in the file");
}

SquadFeatures::Question SquadFeatures::prepare(const WordPiece& tokenizer, int64_t number,
                                               const SquadOptions& options) const {
  const SquadQuestion& question = squad_.questions[static_cast<size_t>(number)];
  const std::vector<Token>& context = contexts_[question.context];
  Question made;
  for (const Token& token : tokenizer.encode(question.text)) {
    if (std::ssize(made.ids) == options.max_question) break;
    made.ids.push_back(token.id);
  }
  made.ids.shrink_to_fit();
  const std::optional<Span> answer = answer_of(question, context);
  if (options.train && !answer && !question.answers.empty()) return made;

  const auto before = static_cast<int32_t>(made.ids.size()) + 2, all = static_cast<int32_t>(context.size());
  const int32_t room = static_cast<int32_t>(options.length) - before - 1;
  const auto step = static_cast<int32_t>(std::min<int64_t>(room, options.stride));
  for (int32_t first = 0; first < all; first += step) {
    Window window{static_cast<int32_t>(number), first, std::min(room, all - first), 0, 0};
    if (answer && answer->first >= first && answer->last < first + window.count) {
      window.start = before + answer->first - first;
      window.end = before + answer->last - first;
    }
    made.windows.push_back(window);
    if (first + window.count == all) break;
  }
  return made;
}

const std::vector<Token>& SquadFeatures::tokens(const Window& window) const {
  return contexts_[squad_.questions[static_cast<size_t>(window.question)].context];
}

int64_t SquadFeatures::context_begin(int64_t i) const {
  return std::ssize(questions_[static_cast<size_t>(window(i).question)]) + 2;
}

TextDataset::Extent SquadFeatures::measure(int64_t i, int64_t) const {
  return {context_begin(i) + window(i).count + 1, 0};
}

TextSample SquadFeatures::read(int64_t i, int64_t) const {
  const Window& w = window(i);
  const std::vector<int32_t>& question = questions_[static_cast<size_t>(w.question)];
  TextSample sample;
  sample.ids.reserve(static_cast<size_t>(measure(i, 0).tokens));
  sample.ids.push_back(cls_);
  sample.ids.insert(sample.ids.end(), question.begin(), question.end());
  sample.ids.push_back(sep_);
  sample.first = std::ssize(sample.ids);
  const std::vector<Token>& context = tokens(w);
  for (int32_t t = w.first; t < w.first + w.count; ++t) sample.ids.push_back(context[static_cast<size_t>(t)].id);
  sample.ids.push_back(sep_);
  sample.start = w.start;
  sample.end = w.end;
  return sample;
}

bool SquadFeatures::has_most_context(int64_t i, int64_t token) const {
  // The smaller context, plus a small bonus for the window's size.
  const auto score = [&](const Window& w) {
    return static_cast<double>(std::min(token - w.first, int64_t{w.first} + w.count - 1 - token)) + 0.01 * w.count;
  };
  const int64_t question = window(i).question;
  const double own = score(window(i));
  for (int64_t other = first_window(question); other < first_window(question + 1); ++other) {
    const Window& w = window(other);
    if (token < w.first || token >= w.first + w.count) continue;
    if (other < i ? score(w) >= own : score(w) > own) return false;
  }
  return true;
}

std::string_view SquadFeatures::text(int64_t i, int64_t start, int64_t end) const {
  const Window& w = window(i);
  const int64_t first = start - context_begin(i), last = end - context_begin(i);
  check(first >= 0 && first <= last && last < w.count, "squad: tokens ", start, " to ", end, " of window ", i,
        " are not in its context");
  const std::vector<Token>& all = tokens(w);
  const uint32_t begin = all[static_cast<size_t>(w.first + first)].begin,
                 stop = all[static_cast<size_t>(w.first + last)].end;
  const std::string& context = squad_.contexts[squad_.questions[static_cast<size_t>(w.question)].context];
  return std::string_view(context).substr(begin, stop - begin);
}

}  // namespace godwit::data
