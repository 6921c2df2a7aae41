#!/usr/bin/env python3
"""Draws adam_and_softsignsgd.png: distance to the minimum under Adam and SoftSignSGD with a constant learning rate.

Left: figure 8 of the BinSGDM paper, f(x) = x²/2 from 1, learning rate 0.5, β1 0.9 and β2 0.99 of Adam, β 0.95 of SoftSignSGD.
Middle and right: our own function, f(x, y) = (x² + 25 y²)/2 from (1, 1), learning rate 0.01, without and with noise.
Prints the largest distances after step 1,000 of the left plot.

  python3 docs/plots/adam_and_softsignsgd.py      needs numpy and matplotlib
"""
import functools
import pathlib

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

EPS = 1e-8


def adam(g, t, m, v, beta1=0.9, beta2=0.999):
    m[:], v[:] = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
    return m / (1 - beta1**t) / (np.sqrt(v / (1 - beta2**t)) + EPS)


def softsignsgd(g, t, m, b, beta=0.9):
    m[:], b[:] = beta * m + (1 - beta) * g, beta * b + (1 - beta) * np.abs(g)
    return m / (b + EPS)


def path(update, curvature, lr, steps, noise=0):
    """Distance to the minimum after each step, from (1, …, 1); noise: standard deviation of what is added to the gradient."""
    random = np.random.default_rng(1)
    x = np.ones(len(curvature))
    first, second = np.zeros_like(x), np.zeros_like(x)
    distances = []
    for t in range(1, steps + 1):
        g = curvature * x + noise * random.standard_normal(len(x))
        x -= lr * update(g, t, first, second)
        distances.append(np.linalg.norm(x))
    return distances


ADAM, SOFTSIGNSGD = "Adam, β2 = {}".format, "SoftSignSGD, β = {}".format
FIGURE_8 = {ADAM(0.99): functools.partial(adam, beta2=0.99), SOFTSIGNSGD(0.95): functools.partial(softsignsgd, beta=0.95)}
OWN = {ADAM(0.999): adam, ADAM(0.9): functools.partial(adam, beta2=0.9), SOFTSIGNSGD(0.9): softsignsgd}

figure, axes = plt.subplots(1, 3, figsize=(14, 3.6), sharey=True)
for name, update in FIGURE_8.items():
    distances = path(update, np.array([1]), 0.5, 5000)
    print(f"{name}: at most {max(distances[1000:]):.4f} from the minimum after step 1,000")
    axes[0].plot(distances, label=name, linewidth=1)
axes[0].set(title="figure 8: x²/2, rate 0.5", ylabel="distance to the minimum")
for axis, noise in zip(axes[1:], (0, 1)):
    for name, update in OWN.items():
        axis.plot(path(update, np.array([1, 25]), 0.01, 1500, noise), label=name, linewidth=1)
    axis.set(title=f"(x² + 25y²)/2, rate 0.01{', noise of deviation 1' if noise else ''}")
for axis in axes:
    axis.set(yscale="log", xlabel="step", ylim=(1e-9, 3))
    axis.grid(alpha=0.3)
    axis.legend()
figure.tight_layout()
figure.savefig(pathlib.Path(__file__).with_suffix(".png"), dpi=110)
