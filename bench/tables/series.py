"""Runs the experiments of one table: chooses learning rates on validation data, then trains with several seeds.

A script of this folder describes one table and calls Table.main(). docs/tables/NAME.csv gets a row when a run ends. A
run with a row is not repeated, so an interrupted script continues when it is called again, also on another machine;
remove the file to measure anew. At the end the script prints the table as Markdown and draws docs/plots/table_NAME.png.
update_page.py writes the tables into docs/convergence.md and docs/ablations.md.
"""
import argparse
import concurrent.futures
import csv
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading

root = pathlib.Path(__file__).resolve().parent.parent.parent
STEP = 2  # factor between neighboring learning rates
PATIENCE = 1800  # seconds that a worker waits for others; a run at low priority can stand still for minutes


def rounded(rate):
    return float(f"{rate:.1e}")


class Rows:
    """The rows of a CSV file, one for each run. A row is appended when a run ends."""

    FIELDS = ("method", "lr", "data", "seed", "value", "bytes_between_nodes_per_step", "core_seconds", "commit", "command")

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


def head():
    """The commit of the checkout."""
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True).stdout.strip()


class Run:
    """One training run."""

    def __init__(self, table, method, rate, seed, validates):
        self.table, self.validates = table, validates
        self.labels = {"method": method, "lr": f"{rate:g}", "data": "validation" if validates else "test", "seed": str(seed)}
        self.folder = table.folder / "-".join(self.labels.values())
        self.flags = [*table.flags, *table.methods[method][1], "--lr", f"{rate:g}", "--seed", str(seed)]
        if validates:
            self.flags += table.validation

    def row(self):
        return self.table.rows.rows.get(Rows.key(self.labels))

    def command(self):
        """The command for a reader, with the names of the folders in place of their paths."""
        return " ".join([f"./{self.table.program}", *(part for flag, (name, _) in self.table.folders.items() for part in (flag, name)), *self.flags])

    def train(self):
        """Trains unless the run has a row. The value of a run that diverges is "diverged"; any other failure is an error."""
        if self.row():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        folders = [part for flag, (_, path) in self.table.folders.items() for part in (flag, path)]
        command = [str(part) for part in (self.table.programs / self.table.program, *folders, *self.flags, "--set", f"timeout_s={PATIENCE}", "--run-dir", self.folder)]
        with tempfile.TemporaryFile("w+") as messages:
            process = subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL, stderr=messages)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            messages.seek(0)
            text = messages.read()
        diverged = process.returncode == 1 and re.search("loss is -?(nan|inf)|not finite", text)
        if process.returncode and not diverged:
            raise RuntimeError(f"{' '.join(command)}\nended with status {process.returncode}: {text}")
        row = {**self.labels, "value": "diverged", "bytes_between_nodes_per_step": "", "core_seconds": f"{used.ru_utime + used.ru_stime:.1f}",
               "commit": self.table.commit, "command": self.command()}
        if not diverged:
            metric = self.table.validation_metric if self.validates else self.table.metric
            values = [line[metric] for line in map(json.loads, open(self.folder / "metrics.jsonl")) if metric in line]
            summary = json.load(open(self.folder / "summary.json"))
            sent = sum(phase["bytes_inter"] for phase in summary["phases"]) / summary["steps"]
            value = "diverged" if values[-1] is None else f"{values[-1]:.6g}"  # null: not finite
            row.update(value=value, bytes_between_nodes_per_step=f"{sent:.0f}")
        self.table.rows.add(row)
        print(f"{self.folder.name}: {row['value']}, {row['core_seconds']} core-seconds", file=sys.stderr, flush=True)

    def value(self):
        """The metric in the last evaluation; None if the run diverged or has not been made."""
        return float(self.row()["value"]) if self.row() and self.row()["value"] != "diverged" else None


class Table:
    """name: of the files. program, flags: the command. methods: by name, (first learning rate, flags). metric: a key of
    metrics.jsonl; better: max or min. factor, unit: for printing. data, weights: what the folders hold that the runs need.
    validation: flags of the runs that choose learning rates by validation_metric; None: the first rates are final."""

    def __init__(self, name, title, program, flags, methods, metric, better, factor=1, unit="", seeds=(1, 2, 3), data=None, weights=None,
                 validation=("--set", "validation=10"), validation_metric=None, most_rates=6):
        self.name, self.title, self.program, self.flags, self.methods = name, title, program, flags.split(), methods
        self.metric, self.better, self.factor, self.unit, self.seeds = metric, better, factor, unit, seeds
        self.validation, self.validation_metric = validation, validation_metric or metric.replace("test_", "validation_")
        self.needs = {"--data": data, "--init-weights": weights}
        self.most_rates = most_rates
        self.folder = root / "runs" / "tables" / name
        self.rows = Rows(root / "docs" / "tables" / f"{name}.csv")
        self.folders, self.commit = {}, head()

    def choose(self, method):
        """The rates tried, with the metric on validation data. Extends the grid until the best rate has a neighbor on each side."""
        first = self.methods[method][0]
        if self.validation is None:
            return {first: None}, first
        tried = {}
        wanted = [rounded(first / STEP), rounded(first), rounded(first * STEP)]
        while wanted:
            for rate in wanted:
                run = Run(self, method, rate, 1, True)
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
        runs = {seed: Run(self, method, best, seed, False) for seed in seeds}
        for run in runs.values():
            if not self.only_prints:
                run.train()
        return tried, best, runs

    def parse(self):
        parser = argparse.ArgumentParser(description=f"{sys.modules['__main__'].__doc__}\n{__doc__}", formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--jobs", type=int, default=1, help="concurrent methods [1]")
        parser.add_argument("--methods", help="a part of the methods, separated by commas")
        parser.add_argument("--seeds", default=",".join(map(str, self.seeds)), help="[%(default)s]")
        for flag, content in self.needs.items():
            if content:
                parser.add_argument(flag, type=lambda path: pathlib.Path(path).resolve(), help=f"folder with {content}")
        parser.add_argument("--programs", type=lambda path: pathlib.Path(path).resolve(), help="folder of built programs [build/release, built first]")
        parser.add_argument("--print", action="store_true", help="print what has been measured, without further runs")
        parser.add_argument("--plot", action="store_true", help="draw what has been measured, without further runs")
        parser.add_argument("--check", action="store_true", help="only test that the programs accept the flags")
        arguments = parser.parse_args()
        unknown = set(arguments.methods.split(",") if arguments.methods else []) - set(self.methods)
        if unknown:
            parser.error(f"no such method: {', '.join(sorted(unknown))}; available: {', '.join(self.methods)}")
        self.only_prints = arguments.print or arguments.plot
        for flag, content in self.needs.items():
            path = getattr(arguments, flag[2:].replace("-", "_"), None)
            if content and not path and not self.only_prints and not arguments.check:
                parser.error(f"{flag} FOLDER is needed: {content}")
            if content:
                self.folders[flag] = flag[2:].upper().replace("INIT-", ""), path
        self.programs = arguments.programs or root / "build" / "release"
        if not self.only_prints and not arguments.programs:
            subprocess.run([root / "scripts" / "build", "release", self.program], check=True)
        return arguments

    def main(self):
        arguments = self.parse()
        if arguments.check:
            return self.check()
        methods = arguments.methods.split(",") if arguments.methods else list(self.methods)
        seeds = [int(seed) for seed in arguments.seeds.split(",")]
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            results = dict(zip(methods, pool.map(lambda method: self.measure(method, seeds), methods)))
        self.only_prints = True
        if not arguments.plot:
            self.print_table(results, seeds)
        if not arguments.print:
            self.plot(results)

    def check(self):
        """Ends with an error if the program refuses the flags of a method."""
        for method, (rate, _) in self.methods.items():
            run = Run(self, method, rate, 1, self.validation is not None)
            names = [part for flag, (name, _) in self.folders.items() for part in (flag, name)]
            result = subprocess.run([self.programs / self.program, *names, *run.flags, "--print-config"], cwd=root, capture_output=True, text=True)
            if result.returncode:
                sys.exit(f"{self.name}: {method}: {run.command()}\n{result.stderr}")

    def difference(self, runs, baseline):
        """Mean and standard deviation of the differences from the baseline's runs with equal seeds: percent of a loss, points otherwise."""
        pairs = [(run.value(), baseline[seed].value()) for seed, run in runs.items()]
        values = [100 * (a / b - 1) if self.better is min else self.factor * (a - b) for a, b in pairs if a is not None and b is not None]
        if not values:
            return "–"
        return f"{statistics.mean(values):+.2f}{f' ± {statistics.stdev(values):.2f}' if len(values) > 1 else ''}{' %' if self.better is min else ''}"

    def print_table(self, results, seeds):
        rates = self.validation is not None
        started = {method: result for method, result in results.items() if any(row["method"] == method for row in self.rows.rows.values())}
        most = max((sum(run.value() is not None for run in runs.values()) for _, _, runs in started.values()), default=len(seeds))
        print(f"{self.title}\n")
        print(f"| method | {self.unit}, {f'mean ± sd of {most} seeds' if most > 1 else 'one seed'} | from {next(iter(self.methods))}, seed by seed | "
              f"{'learning rate: on validation data' if rates else 'learning rate'} | bytes between nodes per step |\n|---|---|---|---|---|")
        for method, (tried, best, runs) in started.items():
            shown = ", ".join(f"{'**' if rate == best else ''}{rate:g}: {'–' if tried[rate] is None else f'{self.factor * tried[rate]:.4g}'}{'**' if rate == best else ''}"
                              for rate in sorted(tried)) if rates else f"{best:g}"
            values = [self.factor * value for run in runs.values() if (value := run.value()) is not None]
            diverged = sum(run.row() is not None for run in runs.values()) - len(values)
            spread = f" ± {statistics.stdev(values):.2g}" if len(values) > 1 else ""
            mean = f"{statistics.mean(values):.4g}{spread}" if values else "–"
            sent = [int(run.row()["bytes_between_nodes_per_step"]) for run in runs.values() if run.value() is not None]
            count = "" if len(values) == most else f" ({len(values)} {'seed' if len(values) == 1 else 'seeds'}{f', {diverged} diverged' if diverged else ''})"
            first = next(iter(self.methods))
            difference = "" if method == first else self.difference(runs, {seed: Run(self, first, self.choose(first)[1], seed, False) for seed in runs})
            print(f"| {method} | {mean}{count} | {difference} | {shown} | {f'{sent[0]:,.0f}' if sent else '–'} |")
        print(f"\n{len(self.rows.rows)} runs, {sum(float(row['core_seconds']) for row in self.rows.rows.values()) / 3600:.1f} core-hours.",
              f"Not run: {', '.join(sorted(results.keys() - started.keys()))}." if len(started) < len(results) else "")

    def plot(self, results):
        """Draws mean and standard deviation of each method that has been measured, and the single runs."""
        try:
            import matplotlib
        except ImportError:
            return print("no plot: matplotlib is not installed", file=sys.stderr)
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
        measured = {method: values for method, (_, _, runs) in results.items()
                    if (values := [self.factor * value for run in runs.values() if (value := run.value()) is not None])}
        if not measured:
            return
        figure, axes = plt.subplots(figsize=(7, 0.35 * len(measured) + 1.2))
        for at, values in enumerate(measured.values()):
            axes.plot(values, [at] * len(values), "|", color="C1")
            axes.errorbar(statistics.mean(values), at, xerr=statistics.stdev(values) if len(values) > 1 else 0, fmt="o", capsize=3, color="C0")
        axes.set_yticks(range(len(measured)), list(measured))
        axes.invert_yaxis()
        axes.set_xlabel(f"{self.unit}: mean, standard deviation, single runs")
        axes.grid(alpha=0.3)
        figure.tight_layout()
        path = root / "docs" / "plots" / f"table_{self.name}.png"
        path.parent.mkdir(exist_ok=True)
        figure.savefig(path, dpi=110)
