#!/usr/bin/env python3
"""Writes golden/: PyTorch's results for ResNet-20 and ResNet-50, the reference for Godwit's models.

Needs python3-torch and python3-torchvision; run it as `python3 tests/models/make_golden.py`. Weights, images and labels
come from an integer hash of (name, index). golden.h computes the same hash, so the files contain only results: per
parameter the norm of the gradient, its dot product with a hashed vector, and eight of its elements.
"""
import json
import math
import pathlib
import struct

import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from torch import nn

GOLDEN = pathlib.Path(__file__).parent / "golden"
SAMPLES, STEPS, SINGLES = 8, 10, 12


def fnv1a(text):
    h = 0x811C9DC5
    for byte in text.encode():
        h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
    return h


def words(name, n):
    """Returns n 32-bit words: word i is a mix of fnv1a(name) + i * 0x9E3779B9."""
    with np.errstate(over="ignore"):
        x = np.uint32(fnv1a(name)) + np.arange(n, dtype=np.uint32) * np.uint32(0x9E3779B9)
        for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
            x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
        return x ^ (x >> np.uint32(16))


def unit(name, n):
    """Returns n multiples of 2^-23 in [-1, 1), exact in float32."""
    return (words(name, n) >> np.uint32(8)).astype(np.float64) * 2.0**-23 - 1.0


def formula(name, shape):
    """Values of a parameter or buffer: center + scale * unit, rounded to float32 once."""
    n = int(np.prod(shape))
    if len(shape) > 1:  # filters and matrices: uniform with variance 2 / fan_in and 1 / fan_in
        fan_in = n // shape[0]
        centre, scale = 0.0, np.float32(math.sqrt((6.0 if len(shape) == 4 else 3.0) / fan_in))
    elif name.endswith("running_var"):
        centre, scale = 1.0, 0.5
    elif name.endswith("bn3.weight"):  # small as after training; otherwise rounding grows a millionfold in ten steps
        centre, scale = 0.1875, 0.0625
    elif name.endswith("weight"):  # gammas
        centre, scale = 0.75, 0.25
    else:
        centre, scale = 0.0, 0.125
    values = np.float32(centre + np.float64(scale) * unit(name, n))
    return torch.from_numpy(values.reshape(shape))


def fill(model):
    for name, tensor in list(model.named_parameters()) + list(model.named_buffers()):
        if not name.endswith("num_batches_tracked"):
            tensor.data.copy_(formula(name, tensor.shape))


class Block(nn.Module):
    """He et al. 2016, section 4.2, shortcut A: every other pixel, with zeros in the new channels."""

    def __init__(self, c_in, c, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(c)
        self.conv2 = nn.Conv2d(c, c, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(c)
        self.stride, self.extra = stride, c - c_in

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.extra)))


class CifarResNet(nn.Module):
    def __init__(self, blocks, num_classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = self.stage(16, 16, 1, blocks)
        self.layer2 = self.stage(16, 32, 2, blocks)
        self.layer3 = self.stage(32, 64, 2, blocks)
        self.fc = nn.Linear(64, num_classes)

    @staticmethod
    def stage(c_in, c, stride, blocks):
        return nn.Sequential(Block(c_in, c, stride), *[Block(c, c, 1) for _ in range(blocks - 1)])

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x))))))
        return self.fc(x.mean((2, 3)))


def summary(name, tensor):
    """The norm, the dot product with unit(name + ".probe"), and SAMPLES elements, indexed in PyTorch's layout."""
    values = tensor.detach().double().flatten().numpy()
    at = words(name + ".sample", SAMPLES) % np.uint32(values.size)
    return [float(np.linalg.norm(values)), float(values @ unit(name + ".probe", values.size)), *map(float, values[at])]


def jiggle(model, run):
    """Changes every parameter by up to one float32 rounding, differently in each run; run 0 is unchanged."""
    if run > 0:
        for p in model.parameters():
            p.data *= 1 + 2.0**-23 * torch.randn(p.shape, dtype=p.dtype).sign()


def train(model, case, dtype, run=0):
    model = model.to(dtype)
    fill(model)
    jiggle(model, run)
    shape = (case["batch"], 3, case["image"], case["image"])
    x = torch.from_numpy(unit("images", int(np.prod(shape))).reshape(shape)).to(dtype)
    labels = torch.from_numpy((words("labels", case["batch"]) % np.uint32(case["classes"])).astype(np.int64))
    result = {"losses": []}
    model.eval()
    with torch.no_grad():
        result["eval_logits"] = model(x).flatten().tolist()
    model.train()
    sgd = torch.optim.SGD(model.parameters(), lr=case["lr"], momentum=case["momentum"])
    for step in range(STEPS):
        sgd.zero_grad()
        logits = model(x)
        loss = F.cross_entropy(logits, labels, label_smoothing=case["label_smoothing"])
        loss.backward()
        result["losses"].append(float(loss))
        if step == 0:
            result["logits"] = logits.flatten().tolist()
            result["gradients"] = {name: summary(name, p.grad) for name, p in model.named_parameters()}
            result["running"] = {name: summary(name, b) for name, b in model.named_buffers() if "running" in name}
        sgd.step()
    return result


def worst(exact, single, count):
    """The largest errors of summaries: norms and dots relative to the norm, samples to the root mean square."""
    result = {"norm": 0.0, "dot": 0.0, "sample": 0.0}
    for name, a in exact.items():
        errors = [abs(p - q) / a[0] for p, q in zip(a, single[name])]
        result["norm"] = max(result["norm"], errors[0])
        result["dot"] = max(result["dot"], errors[1])
        result["sample"] = max(result["sample"], *(e * math.sqrt(count[name]) for e in errors[2:]))
    return result


def relative(a, b):
    return float(np.linalg.norm(np.subtract(a, b)) / np.linalg.norm(a))


def distance(exact, single, count):
    losses = max(abs(p - q) for p, q in zip(exact["losses"], single["losses"])) / exact["losses"][0]
    result = {key: relative(exact[key], single[key]) for key in ("logits", "eval_logits")} | {"losses": losses}
    for key in ("gradients", "running"):
        result |= {f"{key}_{k}": v for k, v in worst(exact[key], single[key], count).items()}
    return result


def compare(model, case):
    """float64 results, and the largest errors of float32 runs whose initial weights differ by one rounding."""
    exact = train(model(), case, torch.float64)
    count = {name: t.numel() for name, t in list(model().named_parameters()) + list(model().named_buffers())}
    runs = [distance(exact, train(model(), case, torch.float32, run), count) for run in range(SINGLES)]
    for run in runs:
        print({key: f"{value:.1e}" for key, value in run.items()})
    exact["float32_error"] = {key: max(run[key] for run in runs) for key in runs[0]}
    return {**case, **exact}


def names(model):
    """Parameters and running statistics of a torchvision model: count, first and last names, hash of the list."""
    def digest(tensors):
        lines = [f"{name} {list(t.shape)}" for name, t in tensors if not name.endswith("num_batches_tracked")]
        return {"count": len(lines), "first": lines[:4], "last": lines[-4:], "fnv1a": fnv1a("\n".join(lines))}
    return {"parameters": digest(model.named_parameters()), "buffers": digest(model.named_buffers())}


def write_safetensors(path, tensors):
    kinds = {torch.float32: "F32", torch.int64: "I64"}
    header, data = {}, b""
    for name, t in tensors.items():
        raw = t.contiguous().numpy().tobytes()
        header[name] = {"dtype": kinds[t.dtype], "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, 2, 1, bias=False)
        self.bn = nn.BatchNorm2d(3)
        self.fc = nn.Linear(3, 4)

    def forward(self, x):
        return self.fc(F.relu(self.bn(self.conv(x))).mean((2, 3)))


def main():
    torch.manual_seed(0)
    GOLDEN.mkdir(exist_ok=True)
    common = {"classes": 10, "momentum": 0.9}
    cases = {
        "resnet20": (lambda: CifarResNet(3, 10),
                     {**common, "batch": 4, "image": 32, "lr": 0.01, "label_smoothing": 0.0}),
        "resnet50": (lambda: torchvision.models.resnet50(num_classes=10),
                     {**common, "batch": 4, "image": 48, "lr": 0.001, "label_smoothing": 0.1}),
    }
    for name, (model, case) in cases.items():
        result = compare(model, case)
        print(name, result["losses"], result["float32_error"])
        (GOLDEN / f"{name}.json").write_text(json.dumps(result, separators=(",", ":")) + "\n")
    lists = {n: names(getattr(torchvision.models, n)()) for n in ("resnet18", "resnet34", "resnet50", "resnet101")}
    lists["resnet20"] = names(CifarResNet(3, 10))
    (GOLDEN / "names.json").write_text(json.dumps(lists, indent=1) + "\n")
    tiny = Tiny().eval()
    fill(tiny)
    write_safetensors(GOLDEN / "tiny.safetensors", tiny.state_dict())
    x = torch.from_numpy(unit("images", 2 * 2 * 5 * 5).reshape(2, 2, 5, 5)).float()
    (GOLDEN / "tiny.json").write_text(json.dumps({"logits": tiny(x).flatten().tolist()}) + "\n")


if __name__ == "__main__":
    main()
