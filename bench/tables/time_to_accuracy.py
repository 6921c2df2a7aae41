#!/usr/bin/env python3
"""Estimates the time of runs of the headline tables on one-core nodes with links of 1 Gbit/s or 100 Mbit/s. Trains
nothing.

Computation is the measured processor time of a run, with its start and evaluation, divided by the number of nodes. For
each table, the times are from the machine that has runs of most methods; other methods are left out. A node sends its
share of the measured bytes at the rate of its link. A range extends from complete overlap of transfers
and computation to none.

  time_to_accuracy.py [--print | --plot]      prints the tables and draws docs/plots/time_to_accuracy.png; --print, --plot: only this
"""
import argparse
import statistics

from series import Rows, root

NODES = 4
LINKS = {"1 Gbit/s": 1e9, "100 Mbit/s": 1e8}  # bit/s
TABLES = {  # name: steps of a run, title, factor, unit
    "mlm_bert_tiny_long": (1600, "BERT-tiny, the King James Bible", 1, "loss of masked words"),
    "sst2_bert_tiny": (1052, "BERT-tiny, SST-2", 100, "accuracy, %"),
    "cifar10_resnet20_epochs": (3124, "ResNet-20, CIFAR-10", 100, "test accuracy, %"),
}


def times(name):
    """By method: mean metric, seconds of computation, and by link the seconds of a run with and without overlap."""
    steps, _, factor, _ = TABLES[name]
    runs, machines = {}, {}
    for row in Rows(root / "docs" / "tables" / f"{name}.csv").rows.values():
        if row["data"] == "test" and row["value"] != "diverged":
            runs.setdefault(row["method"], []).append(row)
            machines.setdefault(row["machine"], set()).add(row["method"])
    machine = max(machines, key=lambda one: len(machines[one]))
    result = {}
    for method, rows in runs.items():
        if method not in machines[machine]:
            continue
        mean = lambda field: statistics.mean(float(row[field]) for row in rows)
        compute = statistics.mean(float(row["core_seconds"]) for row in rows if row["machine"] == machine) / NODES
        send = {link: steps * mean("bytes_between_nodes_per_step") / NODES * 8 / rate for link, rate in LINKS.items()}
        result[method] = factor * mean("value"), compute, {link: (max(compute, s), compute + s) for link, s in send.items()}
    return result


def print_table(name):
    _, title, _, unit = TABLES[name]
    print(f"{title}\n\n| method | {unit} | computation, s | {' | '.join(f'{link}, s' for link in LINKS)} |\n|---|---|---|{'---|' * len(LINKS)}")
    for method, (value, compute, ranges) in times(name).items():
        print(f"| {method} | {value:.4g} | {compute:.0f} | {' | '.join(f'{low:.0f} to {high:.0f}' for low, high in ranges.values())} |")
    print()


def plot():
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    figure, axes = plt.subplots(1, len(TABLES), figsize=(4.5 * len(TABLES), 3.5))
    for axis, name in zip(axes, TABLES):
        measured = times(name)
        for shift, link in ((-0.18, "1 Gbit/s"), (0.18, "100 Mbit/s")):
            for at, (_, _, ranges) in enumerate(measured.values()):
                low, high = ranges[link]
                axis.barh(at + shift, low, 0.32, color="C0" if shift < 0 else "C1", label=link if at == 0 else None)
                axis.plot([low, high], [at + shift] * 2, "-|", color="black")
        axis.set_yticks(range(len(measured)), list(measured))
        axis.invert_yaxis()
        axis.set(xscale="log", title=TABLES[name][1], xlabel="seconds of a run: with overlap to without")
        axis.grid(alpha=0.3, axis="x")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(root / "docs" / "plots" / "time_to_accuracy.png", dpi=110)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--print", action="store_true", help="only print")
parser.add_argument("--plot", action="store_true", help="only draw")
arguments = parser.parse_args()
if not arguments.plot:
    for name in TABLES:
        print_table(name)
    print("`bench/tables/time_to_accuracy.py`, from the rows of " + ", ".join(f"`{name}.csv`" for name in TABLES) + ".")
if not arguments.print:
    plot()
