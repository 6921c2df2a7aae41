#include "data/text/squad_answers.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "engine/check.h"
#include "engine/json-inl.h"
#include "engine/text_file.h"

namespace godwit::data {
namespace {

using nlohmann::ordered_json;

// The indices of the n largest values, in descending order.
std::vector<int32_t> best_places(std::span<const float> logits, int64_t n) {
  std::vector<int32_t> places(logits.size());
  std::iota(places.begin(), places.end(), 0);
  const auto first = places.begin() + std::min<int64_t>(n, std::ssize(places));
  std::partial_sort(places.begin(), first, places.end(), [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  });
  places.erase(first, places.end());
  return places;
}

double score(const Candidate& c) { return double{c.start_logit} + double{c.end_logit}; }

void set_probabilities(std::vector<QuestionAnswers::Entry>& entries) {
  const auto sum_of = [](const auto& entry) { return entry.start_logit + entry.end_logit; };
  double largest = -INFINITY, total = 0;
  for (const auto& entry : entries) largest = std::max(largest, sum_of(entry));
  for (auto& entry : entries) total += entry.probability = std::exp(sum_of(entry) - largest);
  for (auto& entry : entries) entry.probability /= total;
}

void write_json(const std::string& path, const ordered_json& content) {
  write_text_file(path, dump_json(content, 4, true, ordered_json::error_handler_t::replace) + '\n');
}

}  // namespace

std::vector<Candidate> answer_candidates(const SquadFeatures& features, int64_t window,
                                         std::span<const float> start_logits, std::span<const float> end_logits,
                                         const AnswerOptions& options) {
  const auto tokens = static_cast<size_t>(features.measure(window, 0).tokens);
  check(start_logits.size() >= tokens && end_logits.size() >= tokens, "squad: ", start_logits.size(), " and ",
        end_logits.size(), " logits for the ", tokens, " tokens of window ", window);
  for (const auto& logits : {start_logits, end_logits})
    for (size_t i = 0; i < tokens; ++i)
      check(std::isfinite(logits[i]), "squad: logit ", i, " of window ", window, " is ", logits[i]);
  const int64_t begin = features.context_begin(window), end = begin + features.window(window).count;
  const auto in_context = [&](int32_t place) { return place >= begin && place < end; };
  const std::vector<int32_t> ends = best_places(end_logits.first(tokens), options.best);
  std::vector<Candidate> candidates;
  for (const int32_t s : best_places(start_logits.first(tokens), options.best)) {
    if (!in_context(s) || !features.has_most_context(window, features.window(window).first + s - begin)) continue;
    for (const int32_t e : ends)
      if (in_context(e) && e >= s && e - s + 1 <= options.longest)
        candidates.push_back({static_cast<int32_t>(window), s, e, start_logits[static_cast<size_t>(s)],
                              end_logits[static_cast<size_t>(e)]});
  }
  return candidates;
}

std::vector<QuestionAnswers> best_answers(const SquadFeatures& features, std::vector<Candidate> candidates,
                                          const AnswerOptions& options) {
  for (const Candidate& c : candidates)
    check(c.window >= 0 && c.window < features.size(), "squad: a candidate of window ", c.window, " of ",
          features.size());
  std::ranges::stable_sort(candidates, {}, &Candidate::window);
  std::vector<QuestionAnswers> all;
  auto next = candidates.begin();
  for (const SquadQuestion& question : features.squad().questions) {
    QuestionAnswers answers{question.id, {}};
    const int64_t last = features.first_window(std::ssize(all) + 1);
    const auto end = std::find_if(next, candidates.end(), [&](const Candidate& c) { return c.window >= last; });
    std::stable_sort(next, end, [](const Candidate& a, const Candidate& b) { return score(a) > score(b); });
    std::unordered_set<std::string_view> seen;
    for (; next != end; ++next) {
      const std::string_view text = features.text(next->window, next->start, next->end);
      if (std::ssize(answers.best) < options.best && seen.insert(text).second)
        answers.best.push_back({std::string(text), 0, next->start_logit, next->end_logit});
    }
    if (answers.best.empty()) answers.best.push_back({"empty", 0, 0, 0});
    set_probabilities(answers.best);
    all.push_back(std::move(answers));
  }
  return all;
}

Answers first_answers(const std::vector<QuestionAnswers>& all) {
  Answers answers;
  for (const QuestionAnswers& question : all) answers[question.id] = question.best.front().text;
  return answers;
}

void write_predictions(const std::string& path, const std::vector<QuestionAnswers>& all) {
  ordered_json content = ordered_json::object();
  auto& members = content.get_ref<ordered_json::object_t&>();
  for (const QuestionAnswers& question : all) members.emplace_back(question.id, question.best.front().text);
  write_json(path, content);
}

void write_nbest(const std::string& path, const std::vector<QuestionAnswers>& all) {
  ordered_json content = ordered_json::object();
  auto& members = content.get_ref<ordered_json::object_t&>();
  for (const QuestionAnswers& question : all) {
    ordered_json entries = ordered_json::array();
    for (const auto& entry : question.best)
      entries.push_back({{"text", entry.text},
                         {"probability", entry.probability},
                         {"start_logit", entry.start_logit},
                         {"end_logit", entry.end_logit}});
    members.emplace_back(question.id, std::move(entries));
  }
  write_json(path, content);
}

}  // namespace godwit::data
