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
from make_bert_golden import ADAMW, NOTHING, distance, table
from make_golden import GOLDEN, STEPS, formula, jiggle, summary

SINGLES = 12
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


def train(activation, dtype, run=0):
    model = make(dtype, activation)
    jiggle(model, run)
    model.train()
    ids = table("ids", BATCH * LENGTH, CONFIG["vocab_size"]).reshape(BATCH, LENGTH)
    labels = table("labels", BATCH * LENGTH, CONFIG["vocab_size"])
    named = list(model.named_parameters())
    groups = [{"params": [p for _, p in named if p.dim() > 1]},
              {"params": [p for _, p in named if p.dim() == 1], "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, **ADAMW)
    golden = {"losses": []}
    for step in range(STEPS):
        adamw.zero_grad()
        logits = model(input_ids=ids).logits.reshape(-1, CONFIG["vocab_size"])
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        golden["losses"].append(loss.item())
        if step == 0:
            golden["outputs"] = {"logits": summary("logits", logits)}
            golden["gradients"] = {name: summary(name, ours(name, p.grad)) for name, p in named}
        adamw.step()
    golden["parameters"] = {name: summary(name, ours(name, p)) for name, p in named}
    golden["shapes"] = [f"{name} {list(ours(name, p).shape)}" for name, p in named]
    return golden, {name: p.numel() for name, p in named} | {"logits": logits.numel()}


def greedy(seed):
    """Prompt and continuation. The smallest gap between the best two logits tells how safe the comparison is."""
    model = make(torch.float32).eval()
    ids = table(f"prompt{seed}", PROMPT, CONFIG["vocab_size"]).reshape(1, PROMPT)
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, pad_token_id=0,
                             max_new_tokens=CONFIG["n_positions"] - PROMPT)
        best = model(input_ids=out).logits[0, PROMPT - 1:-1].topk(2).values
        gap = (best[:, 0] - best[:, 1]).min().item()
    print("greedy", out[0].tolist(), f"smallest gap {gap:.2g}")
    return {"prompt": ids[0].tolist(), "continuation": out[0, PROMPT:].tolist()}


def main():
    golden = {"config": CONFIG, "batch": BATCH, "length": LENGTH, "adamw": ADAMW, "nothing": NOTHING,
              "made by": f"transformers {transformers.__version__}, torch {torch.__version__}",
              "greedy": [greedy(seed) for seed in range(4)], "activations": {}}
    for activation in ("gelu_new", "gelu"):
        exact, count = train(activation, torch.float64)
        runs = [distance(exact, train(activation, torch.float32, run)[0], count) for run in range(SINGLES)]
        exact["float32_error"] = {key: max(run[key] for run in runs) for key in runs[0]}
        print(activation, exact["losses"], {key: f"{value:.1e}" for key, value in exact["float32_error"].items()})
        golden["activations"][activation] = exact
    (GOLDEN / "gpt2.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    config = transformers.GPT2Config(vocab_size=11, n_positions=6, n_embd=8, n_layer=1, n_head=2, n_inner=12,
                                     bos_token_id=None, eos_token_id=None)
    model = transformers.GPT2LMHeadModel(config)
    fill(model)
    model.save_pretrained(GOLDEN / "gpt2")
    (GOLDEN / "gpt2" / "generation_config.json").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
