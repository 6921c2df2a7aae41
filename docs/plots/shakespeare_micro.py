#!/usr/bin/env python3
"""Draws shakespeare_micro.png: losses of configs/shakespeare/micro.json by step, from shakespeare_micro.csv.

  docs/plots/shakespeare_micro.py            draws the committed figures
  docs/plots/shakespeare_micro.py RUN_DIR    first replaces them by those of a run (metrics.jsonl)

Needs matplotlib.
"""
import csv
import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

NANOGPT = 1.4697  # its README, for the same configuration
table = pathlib.Path(__file__).with_suffix(".csv")

if len(sys.argv) > 1:
    lines = [json.loads(line) for line in (pathlib.Path(sys.argv[1]) / "metrics.jsonl").read_text().splitlines()]
    with table.open("w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["step", "loss", "val_loss"])
        for line in filter(lambda line: "loss" in line or "val_loss" in line, lines):
            writer.writerow([line["step"], line.get("loss", ""), line.get("val_loss", "")])

with table.open() as rows:
    rows = list(csv.DictReader(rows))
figure, axis = plt.subplots(figsize=(7, 3.6))
for column, label in (("loss", "training, with dropout"), ("val_loss", "validation")):
    points = [(int(row["step"]), float(row[column])) for row in rows if row[column]]
    axis.plot(*zip(*points), label=label, linewidth=1)
axis.axhline(NANOGPT, color="gray", linestyle=":", label=f"nanoGPT's best validation loss, {NANOGPT}")
axis.set(xlabel="step", ylabel="loss, nats per character", ylim=(1.0, 2.6))
axis.grid(alpha=0.3)
axis.legend()
figure.tight_layout()
figure.savefig(table.with_suffix(".png"), dpi=110)
