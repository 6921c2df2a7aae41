#!/usr/bin/env python3
"""Draws adam_and_softsignsgd.png: distance to the minimum under Adam and SoftSignSGD with a constant learning rate.

The subject of figure 8 of the BinSGDM paper. The function is our own choice: f(x, y) = (x² + 25 y²)/2, from (1, 1).

  python3 docs/plots/adam_and_softsignsgd.py      needs numpy and matplotlib
"""
import functools
import pathlib

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

STEPS, LR, EPS = 1500, 0.01, 1e-8


def adam(g, t, m, v, beta1=0.9, beta2=0.999):
    m[:], v[:] = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
    return m / (1 - beta1**t) / (np.sqrt(v / (1 - beta2**t)) + EPS)


def softsignsgd(g, t, m, b, beta=0.9):
    m[:], b[:] = beta * m + (1 - beta) * g, beta * b + (1 - beta) * np.abs(g)
    return m / (b + EPS)


def path(update, noise):
    """Distance to (0, 0) after each step; noise: standard deviation of what is added to the gradient."""
    random = np.random.default_rng(1)
    x, first, second = np.ones(2), np.zeros(2), np.zeros(2)
    distances = []
    for t in range(1, STEPS + 1):
        g = np.array([1, 25]) * x + noise * random.standard_normal(2)
        x -= LR * update(g, t, first, second)
        distances.append(np.linalg.norm(x))
    return distances


figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True)
for axis, noise in zip(axes, (0, 1)):
    for name, update in (("Adam", adam), ("Adam, β2 = 0.9", functools.partial(adam, beta2=0.9)), ("SoftSignSGD", softsignsgd)):
        axis.plot(path(update, noise), label=name, linewidth=1)
    axis.set(yscale="log", xlabel="step", title="exact gradients" if noise == 0 else "gradients with noise of deviation 1", ylim=(1e-9, 3))
    axis.grid(alpha=0.3)
axes[0].set_ylabel("distance to the minimum")
axes[0].legend()
figure.tight_layout()
figure.savefig(pathlib.Path(__file__).with_suffix(".png"), dpi=110)
