#!/usr/bin/env python3
"""Writes golden/gpt2.json and golden/gpt2: the results of HuggingFace transformers for a small GPT-2, and a saved one.

Needs torch and transformers; run it as `python3 tests/models/make_gpt2_golden.py`. Weights and inputs come from the
integer hash of make_golden.py. gpt2.json holds logits, every parameter's gradient and, after ten steps of AdamW, every
parameter, each as norm, dot product with a hashed vector and eight elements; the ten losses; and greedy continuations.
Conv1D weights are transposed to [out, in] first, as in Godwit.
"""
import json

import torch
import torch.nn.functional as F
import transformers
from make_golden import GOLDEN, formula
from transformer_golden import ADAMW, NOTHING, compare, greedy, table, train

CONFIG = dict(vocab_size=97, n_positions=16, n_embd=32, n_layer=2, n_head=4)
BATCH, LENGTH, PROMPT = 3, 12, 5


def is_conv1d(name):
    return name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))


def ours(name, tensor):
    return tensor.t().contiguous() if is_conv1d(name) else tensor


def fill(model):
    for name, p in model.named_parameters():
        p.data.copy_(ours(name, formula(name, ours(name, p).shape)))


def make(dtype, activation="gelu_new"):
    config = transformers.GPT2Config(**CONFIG, activation_function=activation, resid_pdrop=0.0, embd_pdrop=0.0,
                                     attn_pdrop=0.0, bos_token_id=None, eos_token_id=None)
    model = transformers.GPT2LMHeadModel._from_config(config, attn_implementation="eager").to(dtype)
    fill(model)
    return model


def run(activation, dtype, number):
    model = make(dtype, activation)
    ids = table("ids", BATCH * LENGTH, CONFIG["vocab_size"]).reshape(BATCH, LENGTH)
    labels = table("labels", BATCH * LENGTH, CONFIG["vocab_size"])

    def step():
        logits = model(input_ids=ids).logits.reshape(-1, CONFIG["vocab_size"])
        return F.cross_entropy(logits, labels), {"logits": logits}
    return train(model, number, step, lambda tensors: {name: ours(name, t) for name, t in tensors.items()})


def main():
    golden = {"config": CONFIG, "batch": BATCH, "length": LENGTH, "adamw": ADAMW, "nothing": NOTHING,
              "made by": f"transformers {transformers.__version__}, torch {torch.__version__}",
              "greedy": [greedy(make(torch.float32), seed, PROMPT, CONFIG["n_positions"]) for seed in range(4)],
              "activations": {}}
    for activation in ("gelu_new", "gelu"):
        golden["activations"][activation] = compare(
            activation, lambda dtype, number: run(activation, dtype, number))
    (GOLDEN / "gpt2.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    config = transformers.GPT2Config(vocab_size=11, n_positions=6, n_embd=8, n_layer=1, n_head=2, n_inner=12,
                                     bos_token_id=None, eos_token_id=None)
    model = transformers.GPT2LMHeadModel(config)
    fill(model)
    model.save_pretrained(GOLDEN / "gpt2")
    (GOLDEN / "gpt2" / "generation_config.json").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
