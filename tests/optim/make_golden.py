#!/usr/bin/python3
"""Writes golden/pytorch.json: 100 steps of PyTorch's SGD, Adam and AdamW in float64 (made with PyTorch 1.13.1).

The gradient of value j at step t is a_j (x_j - c_j) + 0.3 sin(0.7 t + j), a_j = 0.1 (1 + j mod 3), c_j = 0.5 - 0.1 (j mod 7);
x starts at 0.05 (j mod 5) - 0.1. The tests read only the file, not PyTorch (Debian: python3-torch).
"""
import json
import math
import pathlib

import torch

COUNT, STEPS, KEPT = 37, 100, (1, 2, 3, 10, 100)
CASES = {
    "sgd": (torch.optim.SGD, dict(lr=0.05, weight_decay=0.01)),
    "sgdm": (torch.optim.SGD, dict(lr=0.05, momentum=0.9, weight_decay=0.01)),
    "sgdm_nesterov": (torch.optim.SGD, dict(lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01)),
    "adam": (torch.optim.Adam, dict(lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)),
    "adamw": (torch.optim.AdamW, dict(lr=0.01, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.1)),
}


def trajectory(make, options):
    x = torch.tensor([0.05 * (j % 5) - 0.1 for j in range(COUNT)], dtype=torch.float64, requires_grad=True)
    optimizer = make([x], **options)
    kept = {}
    for t in range(1, STEPS + 1):
        grad = [0.1 * (1 + j % 3) * (x[j].item() - (0.5 - 0.1 * (j % 7))) + 0.3 * math.sin(0.7 * t + j) for j in range(COUNT)]
        x.grad = torch.tensor(grad, dtype=torch.float64)
        optimizer.step()
        if t in KEPT:
            kept[str(t)] = x.detach().tolist()
    return kept


def main():
    result = {}
    for name, (make, options) in CASES.items():
        settings = {k: v for k, v in options.items() if k != "betas"}
        if "betas" in options:
            settings["beta1"], settings["beta2"] = options["betas"]
        result[name] = {"optimizer": name.split("_")[0], "settings": settings, "x": trajectory(make, options)}
    path = pathlib.Path(__file__).parent / "golden" / "pytorch.json"
    path.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
