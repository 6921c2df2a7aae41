#!/usr/bin/env python3
"""Writes golden/llama.json and golden/llama, mixtral…: the results of HuggingFace transformers for small LLaMAs and
related models, and saved models.

Needs torch and transformers; run it as `python3 tests/models/make_llama_golden.py`. Weights and inputs come from the
integer hash of make_golden.py. Per case: logits, every parameter's gradient and, after ten steps of AdamW, every
parameter, each as norm, dot product with a hashed vector and eight elements; the ten losses; and greedy continuations.
transformers rounds norms, softmax and rotary positions of a float64 model to float32; the reference does not.
"""
import contextlib
import json

import safetensors.torch  # noqa: F401: before no_float32()
import torch
import torch.nn.functional as F
import transformers
from make_golden import GOLDEN, formula
from transformer_golden import ADAMW, NOTHING, compare, greedy, table, train

BASE = dict(vocab_size=97, max_position_embeddings=16, hidden_size=32, intermediate_size=44, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, bos_token_id=None, eos_token_id=None)
LLAMA3 = dict(rope_type="llama3", rope_theta=100.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=8)
YARN = dict(rope_type="yarn", rope_theta=50.0, factor=2.0, original_max_position_embeddings=8)
CASES = {  # class, changes of BASE
    "llama": ("Llama", {}),
    "llama3": ("Llama", dict(rope_parameters=LLAMA3, tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
                             head_dim=6, num_key_value_heads=1)),
    "linear": ("Llama", dict(rope_parameters=dict(rope_type="linear", rope_theta=20.0, factor=3.0),
                             num_key_value_heads=4)),
    "dynamic": ("Llama", dict(rope_parameters=dict(rope_type="dynamic", rope_theta=20.0, factor=3.0))),
    "mistral": ("Mistral", dict(sliding_window=16, rope_parameters=dict(rope_type="default", rope_theta=1000.0))),
    "qwen2": ("Qwen2", dict(rope_parameters=YARN, tie_word_embeddings=True)),
    "mixtral": ("Mixtral", dict(num_local_experts=4, num_experts_per_tok=2, router_aux_loss_coef=0.1)),
}
BATCH, LENGTH, PROMPT = 3, 12, 5


@contextlib.contextmanager
def no_float32():
    """Casts of transformers to float32 become casts to float64."""
    kept = torch.float, torch.float32, torch.Tensor.float
    torch.float = torch.float32 = torch.float64
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.float, torch.float32, torch.Tensor.float = kept


def ours(tensors):
    """transformers 5 keeps the experts of a layer in one tensor; its folders, and Godwit, do not."""
    result, held_back = {}, {}
    for name, t in tensors.items():
        if ".mlp.gate.weight" in name or ".mlp.experts." in name:
            block = name[:name.index(".mlp.")] + ".block_sparse_moe."
            if name.endswith("gate.weight"):
                held_back[block + "gate.weight"] = t
            for i in range(len(t) if ".experts." in name else 0):
                expert = f"{block}experts.{i}."
                if name.endswith("gate_up_proj"):
                    held_back[expert + "w1.weight"], held_back[expert + "w3.weight"] = t[i].chunk(2)
                else:
                    held_back[expert + "w2.weight"] = t[i]
            continue
        if "input_layernorm" in name:
            result |= dict(sorted(held_back.items(), key=lambda item: place(item[0])))
            held_back = {}
        result[name] = t
    return result


def place(name):
    return (0,) if name.endswith("gate.weight") else (1, int(name.split(".")[-3]), name)


def make(case, dtype):
    kind, changes = CASES[case]
    config = getattr(transformers, kind + "Config")(**(BASE | changes))
    model = getattr(transformers, kind + "ForCausalLM")._from_config(
        config, attn_implementation="eager", experts_implementation="eager").to(dtype)
    for name, p in ours(dict(model.named_parameters())).items():
        p.data.copy_(formula(name, p.shape))
    return model


def run(case, dtype, number):
    with no_float32() if dtype == torch.float64 else contextlib.nullcontext():
        model = make(case, dtype)
        ids = table("ids", BATCH * LENGTH, BASE["vocab_size"]).reshape(BATCH, LENGTH)
        labels = table("labels", BATCH * LENGTH, BASE["vocab_size"])

        def step():
            if case != "mixtral":
                logits = model(input_ids=ids).logits.reshape(-1, BASE["vocab_size"])
                return F.cross_entropy(logits, labels), {"logits": logits}
            result = model(input_ids=ids, output_router_logits=True)
            logits = result.logits.reshape(-1, BASE["vocab_size"])
            loss = F.cross_entropy(logits, labels) + model.router_aux_loss_coef * result.aux_loss
            return loss, {"logits": logits, "aux_loss": result.aux_loss.reshape(1)}
        return train(model, number, step, ours)


def main():
    golden = {"batch": BATCH, "length": LENGTH, "adamw": ADAMW, "nothing": NOTHING,
              "made by": f"transformers {transformers.__version__}, torch {torch.__version__}", "cases": {}}
    for case in CASES:
        exact = compare(case, lambda dtype, number: run(case, dtype, number))
        config = make(case, torch.float32).config.to_dict()
        exact["config"] = {name: value for name, value in config.items() if value is not None}
        exact["greedy"] = [greedy(make(case, torch.float32), seed, PROMPT, BASE["max_position_embeddings"])
                           for seed in range(2)]
        golden["cases"][case] = exact
    (GOLDEN / "llama.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    for case in ("llama3", "qwen2", "mixtral"):
        kind, changes = CASES[case]
        sizes = dict(vocab_size=11, max_position_embeddings=16, hidden_size=8, intermediate_size=6,
                     num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1)
        config = getattr(transformers, kind + "Config")(**(BASE | changes | sizes))
        model = getattr(transformers, kind + "ForCausalLM")(config)
        for name, p in ours(dict(model.named_parameters())).items():
            p.data.copy_(formula(name, p.shape))
        model.save_pretrained(GOLDEN / case)
        (GOLDEN / case / "generation_config.json").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
