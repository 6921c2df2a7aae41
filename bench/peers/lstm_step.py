#!/usr/bin/env python3
"""Peer of bench_lstm_step: the same training step in PyTorch, with the same weights and inputs.

  python3 bench/peers/lstm_step.py [width=650] [layers=2] [batch=20] [length=35] [vocab=0] [threads=cores] [steps=15]
                                   [dtype=f32] [compile=0] [device=cpu] [json=0]

dtype=bf16 uses autocast. Requires torch and numpy (PyPI).
"""
import numpy as np
import torch

import peer

settings = peer.parse("lstm_step.py", dict(width="650", layers="2", batch="20", length="35", vocab="0", steps="15"))
width, layers, batch, length, vocab = (int(settings[k]) for k in ("width", "layers", "batch", "length", "vocab"))
device = settings["device"]


def hashed(name, *shape):
    """Multiples of 2^-23 in [-1, 1): the integer hash of bench/lstm_step.cpp."""
    h = 0x811C9DC5
    for byte in name.encode():
        h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
    with np.errstate(over="ignore"):
        x = np.uint32(h) + np.arange(int(np.prod(shape)), dtype=np.uint32) * np.uint32(0x9E3779B9)
        for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
            x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
        x = x ^ (x >> np.uint32(16))
    return ((x >> np.uint32(8)).astype(np.float64) * 2.0**-23 - 1.0).astype(np.float32).reshape(shape)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Embedding(vocab, width)
        self.rnn = torch.nn.LSTM(width, width, layers)
        self.decoder = torch.nn.Linear(width, vocab)

    def forward(self, ids):
        return self.decoder(self.rnn(self.encoder(ids))[0].flatten(0, 1))


model = (Model() if vocab else torch.nn.LSTM(width, width, layers))
for name, p in model.named_parameters():
    p.data.copy_(torch.from_numpy(np.float32(0.0625) * hashed(name, *p.shape)))
model = model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, weight_decay=1e-4, fused=True)
run = torch.compile(model) if settings["compile"] == "1" else model
if vocab:
    words = [np.int64((hashed(name, length * batch) + np.float32(1)) / np.float32(2) * np.float32(vocab)) % vocab
             for name in ("ids", "labels")]
    ids, labels = (torch.from_numpy(w).to(device) for w in words)
    ids = ids.reshape(length, batch)
else:
    x = torch.from_numpy(hashed("x", length, batch, width)).to(device)


def step():
    optimizer.zero_grad(set_to_none=True)
    with peer.autocast(settings):
        loss = torch.nn.functional.cross_entropy(run(ids), labels) if vocab else run(x)[0].float().square().mean() / 2
    loss.backward()
    optimizer.step()
    return loss.detach()


what = f"{layers}x{width}, batch {batch}, length {length}" + (f", vocabulary {vocab}" if vocab else "")
peer.time_steps("lstm_step.py", settings, f"pytorch {torch.__version__} lstm {settings['dtype']} {what}, sgd", "sequences",
                step)
