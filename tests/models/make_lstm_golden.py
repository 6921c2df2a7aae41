#!/usr/bin/env python3
"""Writes golden/lstm.json: the results of torch.nn.LSTM, and of language models made of it, in float64.

Needs torch, torchvision and numpy; run it as `python3 tests/models/make_lstm_golden.py`. Weights and inputs come from
the integer hash of make_golden.py. "layers": values and gradients of a two-layer LSTM. "models": losses of SGD over
consecutive windows of a text, with the state carried over, then the final parameters and state.
"""
import json

import numpy as np
import torch
from make_golden import GOLDEN, formula, summary, unit, words
from torch import nn

TIME, BATCH, INPUT, WIDTH = 5, 3, 4, 6
VOCABULARY, EMBEDDING, HIDDEN, WINDOW, TOKENS, LR = 23, 6, 8, 4, 19, 0.7


def table(name, *shape):
    return torch.from_numpy(unit(name, int(np.prod(shape))).reshape(shape))


def layers():
    lstm = nn.LSTM(INPUT, WIDTH, 2).double()
    for name, p in lstm.named_parameters():
        p.data.copy_(formula(name, p.shape))
    x = table("x", TIME, BATCH, INPUT).requires_grad_()
    h = [table(f"h{k}", BATCH, WIDTH).requires_grad_() for k in range(2)]
    c = [table(f"c{k}", BATCH, WIDTH).requires_grad_() for k in range(2)]
    y, (h_n, c_n) = lstm(x, (torch.stack(h), torch.stack(c)))
    loss = (y * table("dy", *y.shape)).sum()
    for k in range(2):
        loss = loss + (h_n[k] * table(f"dh{k}", BATCH, WIDTH)).sum() + (c_n[k] * table(f"dc{k}", BATCH, WIDTH)).sum()
    loss.backward()
    gradients = {name: p.grad for name, p in lstm.named_parameters()} | {"x": x.grad}
    for k in range(2):
        gradients |= {f"h{k}": h[k].grad, f"c{k}": c[k].grad}
    return {
        "loss": float(loss.detach()),
        "values": {"y": y.flatten().tolist()} | {f"h{k}": h_n[k].flatten().tolist() for k in range(2)}
        | {f"c{k}": c_n[k].flatten().tolist() for k in range(2)},
        "gradients": {name: summary(name, g) for name, g in gradients.items()},
    }


def model(tied):
    last = EMBEDDING if tied else HIDDEN
    encoder, decoder = nn.Embedding(VOCABULARY, EMBEDDING).double(), nn.Linear(last, VOCABULARY).double()
    rnn = [nn.LSTM(EMBEDDING, HIDDEN).double(), nn.LSTM(HIDDEN, last).double()]
    if tied:
        decoder.weight = encoder.weight
    parameters = {"encoder.weight": encoder.weight}
    for k in range(2):
        parameters |= {f"rnn.{name[:-1]}{k}": p for name, p in rnn[k].named_parameters()}
    if not tied:
        parameters["decoder.weight"] = decoder.weight
    parameters["decoder.bias"] = decoder.bias
    for name, p in parameters.items():
        p.data.copy_(formula(name, p.shape))
    text = torch.from_numpy((words("text", BATCH * TOKENS) % np.uint32(VOCABULARY)).astype(np.int64))
    text = text.reshape(BATCH, TOKENS).t().contiguous()
    sgd = torch.optim.SGD(parameters.values(), lr=LR)
    states = [None, None]
    losses = []
    for at in range(0, TOKENS - 1, WINDOW):
        stop = min(at + WINDOW, TOKENS - 1)
        sgd.zero_grad()
        x = encoder(text[at:stop])
        for k in range(2):
            x, state = rnn[k](x, states[k])
            states[k] = tuple(s.detach() for s in state)
        logits = decoder(x)
        loss = nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), text[at + 1 : stop + 1].reshape(-1))
        loss.backward()
        sgd.step()
        losses.append(float(loss.detach()))
    return {
        "losses": losses,
        "parameters": {name: summary(name, p) for name, p in parameters.items()},
        "state": {f"{name}{k}": s.flatten().tolist() for k in range(2) for name, s in zip("hc", states[k])},
    }


def main():
    golden = {"torch": torch.__version__, "layers": layers(), "models": {"tied": model(True), "untied": model(False)}}
    (GOLDEN / "lstm.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
