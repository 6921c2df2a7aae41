#include "apps/text/gpt_generate.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "apps/text/gpt_data.h"
#include "apps/train/memory_limit.h"
#include "engine/check.h"
#include "engine/context.h"
#include "engine/excerpt.h"
#include "models/generate.h"

namespace godwit::apps {
namespace {

SampleOptions sample_options(const GptConfig& config) {
  SampleOptions options = config.generate.sample;
  options.seed = config.seed;
  return options;
}

// The tokens before a sample.
std::vector<int32_t> start_of_text(const data::Tokenizer& tokenizer) {
  if (const auto end = tokenizer.end_of_text()) return {*end};
  try {
    return tokenizer.encode("\n");
  } catch (const Error&) {  // the tokenizer has no line feed
    return {};
  }
}

// The end tokens of a continuation: end_tokens() of the folder, or the tokenizer's end-of-text token if there are none.
std::vector<int32_t> ends_of(const GptConfig& config, const CausalLMConfig& settings,
                             const data::Tokenizer& tokenizer) {
  std::vector<int32_t> ends;
  for (const int64_t end : end_tokens(config.init_weights, settings))
    if (end >= 0 && end < tokenizer.size()) ends.push_back(static_cast<int32_t>(end));
  if (const auto end = tokenizer.end_of_text(); ends.empty() && end) ends = {*end};
  return ends;
}

// Number of parameters of a folder. Throws like load_causal_lm(), but reads names and shapes only.
int64_t parameters_of(const std::string& folder, const CausalLMConfig& settings) {
  const nn::DeferParameters deferred;
  const std::unique_ptr<CausalLM> model = load_causal_lm(folder, settings);
  int64_t numel = 0;
  for (const Parameter& parameter : model->parameters()) numel += parameter.var.shape().numel();
  return numel;
}

void print_lines(const std::string& text) {
  std::printf("%s\n", printable_lines(text).c_str());
  check(std::fflush(stdout) == 0, "standard output cannot be written");
}

}  // namespace

std::string printable_lines(const std::string& text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of("\n\t", at), text.size());
    result += printable(std::string_view(text).substr(at, end - at));
    if (end < text.size()) result += text[end];
    at = end + 1;
  }
  if (text.ends_with('\n')) result.pop_back();
  return result;
}

std::string sample_text(const CausalLM& model, const data::Tokenizer& tokenizer, const GptConfig& config,
                        const std::function<void()>& after_token) {
  const std::vector<int32_t> start = start_of_text(tokenizer);
  if (start.empty() || config.generate.tokens == 0) return "";
  std::vector<int32_t> ends;
  if (const auto end = tokenizer.end_of_text()) ends = {*end};
  return tokenizer.decode(generate(model, start, config.generate.tokens, tokenizer.size(), sample_options(config), ends,
                                   [&](int32_t) { after_token(); }));
}

void continue_prompt(const GptConfig& config) {
  Context all_threads = context();
  if (config.threads > 0) all_threads.threads = static_cast<int>(config.threads);
  const ContextGuard guard(std::move(all_threads));
  CausalLMConfig settings = settings_of_weights(config);
  check(config.data.tokenizer != data::kCharacters, "--tokenizer characters needs a text; leave it out or name a ",
        "characters.json");
  const std::shared_ptr<const data::Tokenizer> tokenizer = tokenizer_of(config);
  check(tokenizer != nullptr, config.init_weights, ": has no tokenizer; name one with --tokenizer PATH");
  check_vocabulary(config, *tokenizer, settings);
  if (const std::string notice = tokenizer_notice(config, *tokenizer); !notice.empty())
    std::fprintf(stderr, "train_gpt: notice: %s\n", notice.c_str());
  if (config.dtype == "bf16") set_training(&settings, 0, config.seed, DType::bf16);
  check_host_memory_of_parameters(config.init_weights, parameters_of(config.init_weights, settings));
  const std::unique_ptr<CausalLM> model = load_causal_lm(config.init_weights, settings);
  const std::vector<int32_t> prompt = tokenizer->encode(config.generate.prompt);
  // Prints whole lines: a character may span several tokens.
  std::string line = config.generate.prompt;
  const auto print = [&](int32_t token) {
    line.append(tokenizer->token(token));
    if (!line.ends_with('\n')) return;
    print_lines(line);
    line.clear();
  };
  const std::vector<int32_t> ends = ends_of(config, settings, *tokenizer);
  generate(*model, prompt, config.generate.tokens, tokenizer->size(), sample_options(config), ends, [&](int32_t token) {
    if (std::ranges::find(ends, token) == ends.end()) print(token);
  });
  if (!line.empty()) print_lines(line);
}

}  // namespace godwit::apps
