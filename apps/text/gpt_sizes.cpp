#include "apps/text/gpt_config.h"

namespace godwit::apps {

GptSizes::GptSizes(const CausalLMConfig& config) {
  if (const auto* gpt2 = std::get_if<Gpt2Config>(&config)) {
    n_layer = gpt2->n_layer, n_head = gpt2->n_head, n_embd = gpt2->n_embd;
    return;
  }
  const auto& llama = std::get<LlamaConfig>(config);
  n_layer = llama.num_hidden_layers, n_head = llama.num_attention_heads, n_embd = llama.hidden_size;
  n_kv_head = llama.kv_heads(), n_inner = llama.intermediate_size, rope_theta = llama.rope.theta;
  if (!llama.has_experts()) return;
  n_experts = llama.num_local_experts, n_experts_per_token = llama.num_experts_per_tok;
  aux_loss = llama.router_aux_loss_coef;
}

void GptSizes::apply(CausalLMConfig* config) const {
  if (auto* gpt2 = std::get_if<Gpt2Config>(config)) {
    gpt2->n_layer = n_layer, gpt2->n_head = n_head, gpt2->n_embd = n_embd;
    return;
  }
  auto& llama = std::get<LlamaConfig>(*config);
  llama.num_hidden_layers = n_layer, llama.num_attention_heads = n_head, llama.hidden_size = n_embd;
  llama.num_key_value_heads = n_kv_head, llama.intermediate_size = n_inner, llama.rope.theta = rope_theta;
  if (!llama.has_experts()) return;
  llama.num_local_experts = n_experts, llama.num_experts_per_tok = n_experts_per_token;
  llama.router_aux_loss_coef = aux_loss;
}

}  // namespace godwit::apps
