"""Runs the experiments of one table: chooses learning rates on validation data, then trains with several seeds.

A script of this folder describes one table and calls Table.main(). It prints the table as Markdown and draws
docs/plots/table_NAME.png. docs/tables/NAME.csv gets a row when a run ends. A run with a row is not repeated, so an
interrupted script continues when it is called again, also on another machine; remove the file to measure anew.

  SCRIPT [--data FOLDER] [--jobs N] [--methods A,B] [--seeds 1,2,3] [--print]
"""
import argparse
import concurrent.futures
import csv
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import threading
import time

root = pathlib.Path(__file__).resolve().parent.parent.parent
STEP = 10 ** 0.5  # factor between neighboring learning rates


def rounded(rate):
    return float(f"{rate:.1e}")


class Rows:
    """The rows of a CSV file, one for each run. A row is appended when a run ends."""

    FIELDS = ("method", "lr", "data", "seed", "value", "bytes_between_nodes_per_step", "seconds", "commit", "command")

    def __init__(self, path):
        self.path, self.lock, self.rows = path, threading.Lock(), {}
        if path.exists():
            for row in csv.DictReader(open(path, newline="")):
                self.rows[self.key(row)] = row

    @staticmethod
    def key(row):
        return row["method"], row["lr"], row["data"], row["seed"]

    def add(self, row):
        with self.lock:
            self.rows[self.key(row)] = row
            self.path.parent.mkdir(exist_ok=True)
            new = not self.path.exists()
            with open(self.path, "a", newline="") as file:
                writer = csv.DictWriter(file, self.FIELDS, lineterminator="\n")
                if new:
                    writer.writeheader()
                writer.writerow(row)


def commit():
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True).stdout.strip()


class Run:
    """One training run."""

    def __init__(self, table, method, rate, seed, validates):
        self.rows, self.metric = table.rows, table.metric
        self.labels = {"method": method, "lr": f"{rate:g}", "data": "validation" if validates else "test", "seed": str(seed)}
        self.folder = table.folder / "-".join(self.labels.values())
        self.command = [*table.flags, *table.methods[method][1], "--lr", f"{rate:g}", "--seed", str(seed)]
        if validates:
            self.command += ["--set", f"validation={table.validation}"]
        self.program, self.data = table.program, table.data

    def row(self):
        return self.rows.rows.get(Rows.key(self.labels))

    def train(self):
        """Trains unless the run has a row. The value of a run that diverges is "diverged"; any other failure ends the series."""
        if self.row():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        start = time.time()
        command = [root / self.program, *self.data, *self.command, "--run-dir", self.folder]
        result = subprocess.run([str(part) for part in command], cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        diverged = result.returncode == 1 and "not finite" in result.stderr
        if result.returncode and not diverged:
            sys.exit(f"{' '.join(map(str, command))}\nended with status {result.returncode}: {result.stderr}")
        row = {**self.labels, "value": "diverged", "bytes_between_nodes_per_step": "", "seconds": f"{time.time() - start:.0f}",
               "commit": commit(), "command": " ".join([f"./{self.program}", *self.command])}
        if not diverged:
            names = (self.metric, self.metric.replace("test_", "validation_"))
            values = [line[name] for line in map(json.loads, open(self.folder / "metrics.jsonl")) for name in names if name in line]
            summary = json.load(open(self.folder / "summary.json"))
            sent = sum(phase["bytes_inter"] for phase in summary["phases"]) / summary["steps"]
            row.update(value=f"{values[-1]:.6g}", bytes_between_nodes_per_step=f"{sent:.0f}")
        self.rows.add(row)
        print(f"{self.folder.name}: {row['value']}, {row['seconds']} s", file=sys.stderr, flush=True)

    def value(self):
        """The metric in the last evaluation; None if the run diverged or has not been made."""
        return float(self.row()["value"]) if self.row() and self.row()["value"] != "diverged" else None


class Table:
    """name: of the files. program, flags: the command. methods: by name, (first learning rate, flags). metric: a key of
    metrics.jsonl that ends the comparison; better: max or min. factor, unit: for printing."""

    def __init__(self, name, title, program, flags, methods, metric, better, factor=1, unit="", seeds=(1, 2, 3), validation=10, most_rates=6):
        self.name, self.title, self.program, self.flags, self.methods = name, title, program, flags, methods
        self.metric, self.better, self.factor, self.unit, self.seeds, self.validation = metric, better, factor, unit, seeds, validation
        self.most_rates = most_rates
        self.folder = root / "runs" / "tables" / name
        self.rows = Rows(root / "docs" / "tables" / f"{name}.csv")
        self.data = []

    def run(self, method, rate, seed, validates):
        return Run(self, method, rate, seed, validates)

    def choose(self, method):
        """The rates tried, with the metric on validation data. Extends the grid until the best rate has a neighbor on each side."""
        first = self.methods[method][0]
        tried = {}
        wanted = [rounded(first / STEP), rounded(first), rounded(first * STEP)]
        while wanted:
            for rate in wanted:
                run = self.run(method, rate, 1, True)
                if not self.only_prints:
                    run.train()
                tried[rate] = run.value()
            worst = float("-inf") if self.better is max else float("inf")
            best = self.better(tried, key=lambda rate: worst if tried[rate] is None else tried[rate])
            wanted = []
            if len(tried) < self.most_rates and tried[best] is not None:
                if best == min(tried):
                    wanted = [rounded(best / STEP)]
                elif best == max(tried):
                    wanted = [rounded(best * STEP)]
        return tried, best

    def measure(self, method, seeds):
        tried, best = self.choose(method)
        runs = {seed: self.run(method, best, seed, False) for seed in seeds}
        for run in runs.values():
            if not self.only_prints:
                run.train()
        return tried, best, runs

    def main(self):
        parser = argparse.ArgumentParser(description=f"{self.title}\n\n{__doc__}", formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--jobs", type=int, default=1, help="concurrent methods [1]")
        parser.add_argument("--methods", help="a part of the methods, separated by commas")
        parser.add_argument("--seeds", default=",".join(map(str, self.seeds)))
        parser.add_argument("--data", type=lambda path: pathlib.Path(path).resolve(), help="data of the runs")
        parser.add_argument("--print", action="store_true", help="print what has been measured, without further runs")
        arguments = parser.parse_args()
        if arguments.data:
            self.data = ["--data", arguments.data]
        self.only_prints = arguments.print
        methods = arguments.methods.split(",") if arguments.methods else list(self.methods)
        seeds = [int(seed) for seed in arguments.seeds.split(",")]
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            results = dict(zip(methods, pool.map(lambda method: self.measure(method, seeds), methods)))
        self.print_table(results, seeds)
        self.plot(results)

    def print_table(self, results, seeds):
        print(f"{self.title}\n")
        print(f"| method | {self.unit}, mean ± standard deviation of {len(seeds)} seeds | learning rate: on validation data | bytes between nodes per step |")
        print("|---|---|---|---|")
        for method, (tried, best, runs) in results.items():
            shown = ", ".join(f"{'**' if rate == best else ''}{rate:g}: {'–' if tried[rate] is None else f'{self.factor * tried[rate]:.4g}'}{'**' if rate == best else ''}"
                              for rate in sorted(tried))
            values = [self.factor * value for run in runs.values() if (value := run.value()) is not None]
            diverged = sum(run.row() is not None for run in runs.values()) - len(values)
            spread = f" ± {statistics.stdev(values):.2g}" if len(values) > 1 else ""
            mean = f"{statistics.mean(values):.4g}{spread}" if values else "–"
            sent = [int(run.row()["bytes_between_nodes_per_step"]) for run in runs.values() if run.value() is not None]
            count = "" if len(values) == len(seeds) else f" ({len(values)} seeds{f', {diverged} diverged' if diverged else ''})"
            print(f"| {method} | {mean}{count} | {shown} | {sent[0] if sent else 0:,.0f} |")

    def plot(self, results):
        try:
            import matplotlib
        except ImportError:
            return print("no plot: matplotlib is not installed", file=sys.stderr)
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
        figure, axes = plt.subplots(figsize=(7, 0.35 * len(results) + 1.2))
        for at, (method, (tried, best, runs)) in enumerate(results.items()):
            values = [self.factor * value for run in runs.values() if (value := run.value()) is not None]
            if values:
                axes.errorbar(statistics.mean(values), at, xerr=statistics.stdev(values) if len(values) > 1 else 0, fmt="o", capsize=3, color="C0")
        axes.set_yticks(range(len(results)), list(results))
        axes.invert_yaxis()
        axes.set_xlabel(self.unit)
        axes.grid(alpha=0.3)
        figure.tight_layout()
        path = root / "docs" / "plots" / f"table_{self.name}.png"
        path.parent.mkdir(exist_ok=True)
        figure.savefig(path, dpi=110)
