"""Common code of the scripts for golden files of transformers: inputs, ten steps of AdamW, errors of float32."""
import numpy as np
import torch
from make_golden import STEPS, formula, jiggle, summary, words, worst

SINGLES = 12
ADAMW = dict(lr=2e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.1)
# Smaller gradients consist only of rounding, e.g. of key.bias, which shifts all scores of a softmax equally.
NOTHING = 1e-12


def table(name, count, limit):
    return torch.from_numpy((words(name, count) % np.uint32(limit)).astype(np.int64))


def fill(named):
    for name, p in named:
        p.data.copy_(formula(name, p.shape))


def train(model, run, step, ours=dict):
    """Results of STEPS steps of AdamW, and the number of elements of each tensor. step() returns the loss, and outputs
    by name; ours() maps tensors by transformers' names to Godwit's names and layouts."""
    jiggle(model, run)
    model.train()
    named = list(model.named_parameters())
    groups = [{"params": [p for _, p in named if p.dim() > 1]},
              {"params": [p for _, p in named if p.dim() == 1], "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, **ADAMW)
    golden = {"losses": []}
    for number in range(STEPS):
        adamw.zero_grad()
        loss, outputs = step()
        loss.backward()
        golden["losses"].append(loss.item())
        if number == 0:
            golden["outputs"] = {name: summary(name, t) for name, t in outputs.items()}
            golden["gradients"] = {n: summary(n, g) for n, g in ours({n: p.grad for n, p in named}).items()}
        adamw.step()
    parameters = ours({name: p.detach() for name, p in named})
    golden["parameters"] = {name: summary(name, p) for name, p in parameters.items()}
    golden["shapes"] = [f"{name} {list(p.shape)}" for name, p in parameters.items()]
    return golden, {name: t.numel() for name, t in [*parameters.items(), *outputs.items()]}


def distance(exact, single, count):
    result = {"losses": max(abs(p - q) for p, q in zip(exact["losses"], single["losses"])) / exact["losses"][0]}
    for key in ("outputs", "gradients", "parameters"):
        names = [name for name in exact[key] if exact[key][name][0] > NOTHING]
        result |= {f"{key}_{k}": v for k, v in worst({n: exact[key][n] for n in names}, single[key], count).items()}
    return result


def compare(name, run):
    """run(dtype, number) with float64, and the largest errors of float32 runs."""
    exact, count = run(torch.float64, 0)
    errors = [distance(exact, run(torch.float32, number)[0], count) for number in range(SINGLES)]
    exact["float32_error"] = {key: max(error[key] for error in errors) for key in errors[0]}
    print(name, exact["losses"], {key: f"{value:.1e}" for key, value in exact["float32_error"].items()})
    return exact


def greedy(model, seed, prompt, positions):
    """Prompt and continuation. The smallest gap between the best two logits tells how safe the comparison is."""
    model = model.eval()
    ids = table(f"prompt{seed}", prompt, model.config.vocab_size).reshape(1, prompt)
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, pad_token_id=0,
                             max_new_tokens=positions - prompt)
        best = model(input_ids=out).logits[0, prompt - 1:-1].topk(2).values
        gap = (best[:, 0] - best[:, 1]).min().item()
    print("greedy", out[0].tolist(), f"smallest gap {gap:.2g}")
    return {"prompt": ids[0].tolist(), "continuation": out[0, prompt:].tolist()}
