#!/usr/bin/env python3
"""Peer of bench_gpt2_step: the same GPT-2 training step in plain PyTorch: one product for queries, keys and values,
scaled_dot_product_attention, tied output weight, cross-entropy of all logits, fused AdamW, no dropout.

  python3 bench/peers/gpt2_step.py [batch=4] [length=1024] [threads=cores] [steps=7] [dtype=f32] [compile=0]
                                   [device=cpu] [json=0] [weights=DIR] [losses=FILE]

dtype=bf16 uses autocast. weights: the folder that bench_gpt2_step save=DIR writes; without it, random weights.
losses: write the losses of the first two steps, for bench_gpt2_step losses=FILE and llmc_step, and exit.
Requires torch and, for weights, safetensors (both from PyPI).
"""
import os

import torch
from torch import nn
from torch.nn import functional as F

import peer

VOCABULARY, POSITIONS, WIDTH, LAYERS, HEADS = 50257, 1024, 768, 12, 12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.attn_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.mlp_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2)
                   for part in self.c_attn(self.ln_1(x)).split(WIDTH, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(y.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, labels):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, VOCABULARY), labels)

    def load(self, folder):
        from safetensors.torch import load_file
        saved = load_file(f"{folder}/model.safetensors")
        names = {"attn_proj": "attn.c_proj", "c_attn": "attn.c_attn", "c_fc": "mlp.c_fc", "mlp_proj": "mlp.c_proj"}
        with torch.no_grad():
            for name, p in self.named_parameters():
                path = name.split(".")
                if path[0] == "blocks":
                    path = ["h", path[1], names.get(path[2], path[2]), path[3]]
                value = saved["transformer." + ".".join(path)]
                p.copy_(value.T if path[-1] == "weight" and path[0] == "h" and p.dim() == 2 else value)


def tokens(first, count):
    return torch.tensor([((i * 2654435761) % 2**32 * VOCABULARY) >> 32 for i in range(first, first + count)])


settings = peer.parse("gpt2_step.py", dict(batch="4", length="1024", weights="", losses=""))
batch, length, device = int(settings["batch"]), int(settings["length"]), settings["device"]
model = Gpt2()
if settings["weights"]:
    model.load(settings["weights"])
model = model.to(device).train()
decayed = [p for p in model.parameters() if p.dim() > 1]
rest = [p for p in model.parameters() if p.dim() == 1]
optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 1e-4}, {"params": rest, "weight_decay": 0.0}],
                              lr=1e-4, fused=True)
ids, labels = tokens(0, batch * length).view(batch, length).to(device), tokens(1, batch * length).to(device)
forward = torch.compile(model) if settings["compile"] == "1" else model


def step():
    optimizer.zero_grad(set_to_none=True)
    with peer.autocast(settings):
        loss = forward(ids, labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


if settings["losses"]:
    losses = [step().item() for _ in range(2)]  # the file is written whole or not at all
    with open(settings["losses"] + ".part", "w") as file:
        file.writelines(f"{loss}\n" for loss in losses)
    os.replace(settings["losses"] + ".part", settings["losses"])
else:
    peer.time_steps("gpt2_step.py", settings, f"pytorch {torch.__version__} gpt2 {settings['dtype']} batch {batch}, "
                    f"{length} tokens, adamw", "texts", step)
