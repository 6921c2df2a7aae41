#!/usr/bin/env python3
"""Draws accuracy_and_bytes.png from the table of the section "ResNet-20 on CIFAR-10" of docs/single_runs.md.

  python3 docs/plots/accuracy_and_bytes.py      needs matplotlib
"""
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

folder = pathlib.Path(__file__).resolve().parent
METHODS = ("sgdm", "adamw", "softsignsgd", "birder")


def rows_of_table():
    """Method -> (top-1 in percent, bytes between nodes per step)."""
    rows, inside = {}, False
    section = (folder.parent / "single_runs.md").read_text(encoding="utf-8").split("## ResNet-20 on CIFAR-10\n")[1]
    for line in section.splitlines():
        cells = [cell.strip().strip("*") for cell in line.strip("|").split("|")]
        if inside and not line.startswith("|"):
            break
        if "bytes between nodes" in line and line.startswith("|"):
            inside = True
        elif inside and cells[0] in METHODS:
            rows[cells[0]] = float(cells[1]), int(cells[2].replace(",", ""))
    assert sorted(rows) == sorted(METHODS), rows
    return rows


rows = rows_of_table()
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 2.6), sharey=True)
colors = ["#9aa5b1"] * 3 + ["#c0392b"]
for axes, values, title, text in (
    (left, [rows[m][0] for m in METHODS], "test top-1 accuracy, %", "{:.1f}"),
    (right, [rows[m][1] / 1e6 for m in METHODS], "megabytes between nodes per step", "{:.2f}"),
):
    bars = axes.barh(METHODS, values, color=colors)
    axes.bar_label(bars, [text.format(v) for v in values], padding=3)
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.15)
left.set_xlim(0, 100)
left.invert_yaxis()
figure.tight_layout()
figure.savefig(folder / "accuracy_and_bytes.png", dpi=110)
