#include "models/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/context.h"
#include "engine/philox.h"

namespace godwit {
namespace {

// Logits of the next token, after the cached text and `tokens`.
std::vector<float> next_logits(const CausalLM& model, std::span<const int32_t> tokens, KeyValueCache& cache) {
  const int64_t count = std::ssize(tokens);
  const Tensor ids({1, count}, DType::i32, kCpu);
  std::copy(tokens.begin(), tokens.end(), ids.data<int32_t>());
  const Var hidden = model.forward(ids, cache);
  const Tensor logits = model.logits(Var(hidden.value().rows(count - 1, 1))).value();
  return logits.to(DType::f32).to_vector<float>();
}

}  // namespace

void check_sample_options(const SampleOptions& options) {
  check(options.temperature >= 0 && std::isfinite(options.temperature),
        "temperature must be finite and not negative, got ", options.temperature);
  check(options.top_k >= 0, "top_k must not be negative, got ", options.top_k);
  check(options.top_p > 0 && options.top_p <= 1, "top_p must be in (0, 1], got ", options.top_p);
}

int32_t sample_token(std::span<const float> logits, const SampleOptions& options, double uniform) {
  check(!logits.empty(), "sample_token: there are no logits");
  std::vector<int32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto logit = [&](int32_t token) { return logits[static_cast<size_t>(token)]; };
  for (const int32_t token : tokens)
    check(!std::isnan(logit(token)), "the logit of token ", token, " is not a number; the weights are unusable");
  const auto before = [&](int32_t a, int32_t b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; };
  if (options.temperature == 0) return *std::min_element(tokens.begin(), tokens.end(), before);
  const size_t k = options.top_k > 0 ? std::min(static_cast<size_t>(options.top_k), tokens.size()) : tokens.size();
  std::partial_sort(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(k), tokens.end(), before);
  tokens.resize(k);
  std::vector<double> p(k);
  const double largest = logit(tokens[0]);
  for (size_t i = 0; i < k; ++i) p[i] = std::exp((logit(tokens[i]) - largest) / options.temperature);
  const double all = std::accumulate(p.begin(), p.end(), 0.0);
  double kept = 0;  // sum over the tokens that top_p keeps
  size_t n = 0;
  while (n < k && (n == 0 || kept < options.top_p * all)) kept += p[n++];
  double rest = uniform * kept;
  for (size_t i = 0; i < n; ++i)
    if ((rest -= p[i]) < 0) return tokens[i];
  return tokens[n - 1];
}

std::vector<int32_t> generate(const CausalLM& model, std::span<const int32_t> prompt, int64_t count,
                              int64_t vocabulary, const SampleOptions& options, std::span<const int32_t> ends,
                              const std::function<void(int32_t)>& each) {
  check_sample_options(options);
  const CausalLM::Sizes& sizes = model.sizes();
  const int64_t positions = sizes.positions;
  check(!prompt.empty(), "the prompt is empty; give at least one token to continue");
  check(std::ssize(prompt) <= positions, "the prompt has ", prompt.size(), " tokens, the model has ", positions,
        " positions (", sizes.positions_field, "); shorten the prompt");
  check(vocabulary >= 1 && vocabulary <= sizes.vocab_size, "generate: a vocabulary of ", vocabulary,
        " tokens, the model has ", sizes.vocab_size, " (vocab_size)");
  check(count >= 0, "generate: count ", count, " is negative");
  const NoGrad no_grad;
  RandomStream random(options.seed, Purpose::sample);
  std::vector<int32_t> text(prompt.begin(), prompt.end()), result;
  size_t read = 0;  // index of the first token after those in the cache
  KeyValueCache cache = model.make_cache(std::min(positions, std::ssize(prompt) + std::min(count, positions)));
  while (std::ssize(result) < count) {
    if (cache.length() + std::ssize(text) - static_cast<int64_t>(read) > positions) {
      cache = model.make_cache(positions);
      read = text.size() - static_cast<size_t>((positions + 1) / 2);
    }
    const std::vector<float> logits = next_logits(model, std::span(text).subspan(read), cache);
    read = text.size();
    text.push_back(sample_token(std::span(logits).first(static_cast<size_t>(vocabulary)), options, random.uniform()));
    result.push_back(text.back());
    if (each) each(text.back());
    if (std::ranges::find(ends, text.back()) != ends.end()) break;
  }
  return result;
}

}  // namespace godwit
