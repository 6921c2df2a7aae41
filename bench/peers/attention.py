#!/usr/bin/env python3
"""Peer of bench_attention: times torch.nn.functional.scaled_dot_product_attention, forward and backward.

The tensors have the layout of HuggingFace's BERT: [batch, length, heads, width], transposed for the call and back.

  python3 bench/peers/attention.py [batch=8] [length=128] [heads=12] [width=64] [filled=100] [dropout=0] [dtype=f32] [threads=cores] [rounds=15]

With one thread the script measures processor time, with several threads wall-clock time. Requires torch.
"""
import os
import statistics
import sys
import time

import torch

settings = dict(batch="8", length="128", heads="12", width="64", filled="100", dropout="0", dtype="f32", threads="0", rounds="15")
for argument in sys.argv[1:]:
    name, _, value = argument.partition("=")
    if name not in settings:
        sys.exit(f"attention.py: '{argument}' is unknown; expected one of {' '.join(key + '=' for key in settings)}")
    settings[name] = value
batch, length, heads, width = (int(settings[name]) for name in ("batch", "length", "heads", "width"))
filled, dropout = int(settings["filled"]), float(settings["dropout"])
threads = int(settings["threads"]) or len(os.sched_getaffinity(0))
torch.set_num_threads(threads)
torch.manual_seed(1)
dtype = torch.bfloat16 if settings["dtype"] == "bf16" else torch.float32
q, k, v = (torch.randn(batch, length, heads, width).to(dtype).requires_grad_() for _ in range(3))
d_out = torch.randn(batch, length, heads, width).to(dtype)
mask = None
if filled != 100:
    mask = (torch.arange(length) < max(1, length * filled // 100)).expand(batch, 1, length, length)


def forward(p=dropout):
    return torch.nn.functional.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask, dropout_p=p).transpose(1, 2)


with torch.no_grad():
    scores = torch.einsum("bihd,bjhd->bhij", q.double(), k.double()) / width**0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    expected = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v.double())
    torch.testing.assert_close(forward(0.0).double(), expected, rtol=0, atol=0.05 if dtype == torch.bfloat16 else 1e-5)

clock = time.thread_time if threads == 1 else time.perf_counter
times = []
for _ in range(int(settings["rounds"]) + 1):
    q.grad = k.grad = v.grad = None
    start = clock()
    out = forward()
    middle = clock()
    torch.autograd.backward(out, d_out)
    end = clock()
    times.append((end - start, middle - start, end - middle))
both, ahead, back = (statistics.median(column) for column in zip(*times[1:]))
print(f"pytorch {torch.__version__} attention [{batch}, {length}, {heads}, {width}] {settings['dtype']}, {filled}% filled, "
      f"dropout {dropout:g}, {threads} threads")
print(f"  {both:.5f} s/step   forward {ahead:.5f} s   backward {back:.5f} s")
