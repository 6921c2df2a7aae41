"""Runs the experiments of one table: chooses learning rates on validation data, then trains with several seeds.

A script of this folder describes one table and calls Table.main(). It prints the table as Markdown and writes
docs/tables/NAME.csv (a row per run) and docs/plots/NAME.png. Runs are kept in runs/tables/NAME; a finished run is not
repeated, so an interrupted script continues when it is called again.

  SCRIPT [--data FOLDER] [--jobs N] [--methods A,B] [--seeds 1,2,3]
"""
import argparse
import concurrent.futures
import csv
import datetime
import json
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import time

root = pathlib.Path(__file__).resolve().parent.parent.parent
STEP = 10 ** 0.5  # factor between neighboring learning rates


def rounded(rate):
    return float(f"{rate:.1e}")


class Run:
    """One training run in a folder of its own."""

    def __init__(self, folder, command):
        self.folder, self.command = folder, [*command, "--run-dir", folder]

    def finished(self):
        return (self.folder / "done.json").exists()

    def train(self):
        """Trains unless the run is finished. A run that diverges counts as finished."""
        if self.finished():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        start = time.time()
        result = subprocess.run([str(part) for part in self.command], cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if result.returncode not in (0, 1):
            sys.exit(f"{' '.join(map(str, self.command))}\nended with status {result.returncode}: {result.stderr}")
        self.folder.mkdir(parents=True, exist_ok=True)
        done = {"command": " ".join(map(str, self.command)), "seconds": round(time.time() - start, 1), "failed": result.stderr.strip() if result.returncode else ""}
        (self.folder / "done.json").write_text(json.dumps(done, indent=1) + "\n")
        print(f"{self.folder.relative_to(root)}: {done['seconds']} s{', failed: ' + done['failed'][:200] if done['failed'] else ''}", file=sys.stderr, flush=True)

    def done(self):
        return json.load(open(self.folder / "done.json"))

    def metrics(self):
        return [json.loads(line) for line in open(self.folder / "metrics.jsonl")]

    def value(self, metric):
        """The metric in the last evaluation, under its own name or of the validation data; None if the run failed."""
        if self.done()["failed"]:
            return None
        names = (metric, metric.replace("test_", "validation_"))
        values = [m[name] for m in self.metrics() for name in names if name in m]
        return values[-1] if values else None

    def bytes_between_nodes(self):
        summary = json.load(open(self.folder / "summary.json"))
        return sum(phase["bytes_inter"] for phase in summary["phases"]) / summary["steps"]


class Table:
    """name: of the files. program, flags: the command. methods: by name, (first learning rate, flags). metric: a key of
    metrics.jsonl that ends the comparison; better: max or min. factor, unit: for printing."""

    def __init__(self, name, title, program, flags, methods, metric, better, factor=1, unit="", seeds=(1, 2, 3), validation=10, most_rates=6):
        self.name, self.title, self.program, self.flags, self.methods = name, title, program, flags, methods
        self.metric, self.better, self.factor, self.unit, self.seeds, self.validation = metric, better, factor, unit, seeds, validation
        self.most_rates = most_rates
        self.folder = root / "runs" / "tables" / name

    def run(self, method, rate, seed, validates):
        flags = [*self.flags, *self.methods[method][1], "--lr", f"{rate:g}", "--seed", str(seed)]
        if validates:
            flags += ["--set", f"validation={self.validation}"]
        return Run(self.folder / f"{method}-{rate:g}-{'validation' if validates else seed}", [root / self.program, *flags])

    def choose(self, method):
        """The rates tried, with the metric on validation data. Extends the grid until the best rate has a neighbor on each side."""
        first = self.methods[method][0]
        tried = {}
        wanted = [rounded(first / STEP), rounded(first), rounded(first * STEP)]
        while wanted:
            for rate in wanted:
                run = self.run(method, rate, 1, True)
                run.train()
                tried[rate] = run.value(self.metric)
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
            run.train()
        return tried, best, runs

    def main(self):
        parser = argparse.ArgumentParser(description=f"{self.title}\n\n{__doc__}", formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--jobs", type=int, default=1, help="concurrent methods [1]")
        parser.add_argument("--methods", help="a part of the methods, separated by commas")
        parser.add_argument("--seeds", default=",".join(map(str, self.seeds)))
        parser.add_argument("--data", type=lambda path: pathlib.Path(path).resolve(), help="data of the runs")
        arguments = parser.parse_args()
        if arguments.data:
            self.flags = ["--data", arguments.data, *self.flags]
        methods = arguments.methods.split(",") if arguments.methods else list(self.methods)
        seeds = [int(seed) for seed in arguments.seeds.split(",")]
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            results = dict(zip(methods, pool.map(lambda method: self.measure(method, seeds), methods)))
        self.write_csv(results)
        self.print_table(results, seeds)
        self.plot(results)

    def write_csv(self, results):
        path = root / "docs" / "tables" / f"{self.name}.csv"
        path.parent.mkdir(exist_ok=True)
        with open(path, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["method", "lr", "data", "seed", self.metric, "bytes_between_nodes_per_step", "seconds", "command"])
            for method, (tried, best, runs) in results.items():
                rows = [(rate, "validation", 1, self.run(method, rate, 1, True)) for rate in sorted(tried)]
                rows += [(best, "test", seed, run) for seed, run in runs.items()]
                for rate, data, seed, run in rows:
                    value = run.value(self.metric)
                    sent = "" if value is None else round(run.bytes_between_nodes())
                    command = run.done()["command"].replace(f"{root}/", "")
                    writer.writerow([method, f"{rate:g}", data, seed, "failed" if value is None else f"{value:.6g}", sent, run.done()["seconds"], command])

    def print_table(self, results, seeds):
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True).stdout.strip()
        hours = sum(run.done()["seconds"] for method, (tried, best, runs) in results.items()
                    for run in [*runs.values(), *(self.run(method, rate, 1, True) for rate in tried)]) / 3600
        processor = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.processor())
        print(f"{self.title} {datetime.date.today()}, commit {commit}, {processor}, {hours:.1f} hours of runs.\n")
        print(f"| method | {self.unit}, mean ± standard deviation of {len(seeds)} seeds | learning rate: on validation data | bytes between nodes per step |")
        print("|---|---|---|---|")
        for method, (tried, best, runs) in results.items():
            shown = ", ".join(f"{'**' if rate == best else ''}{rate:g}: {'–' if tried[rate] is None else f'{self.factor * tried[rate]:.4g}'}{'**' if rate == best else ''}"
                              for rate in sorted(tried))
            values = [self.factor * value for run in runs.values() if (value := run.value(self.metric)) is not None]
            failed = len(runs) - len(values)
            spread = f" ± {statistics.stdev(values):.2g}" if len(values) > 1 else ""
            mean = f"{statistics.mean(values):.4g}{spread}" if values else "–"
            sent = [run.bytes_between_nodes() for run in runs.values() if run.value(self.metric) is not None]
            print(f"| {method} | {mean}{f' ({failed} failed)' if failed else ''} | {shown} | {sent[0] if sent else 0:,.0f} |")

    def plot(self, results):
        try:
            import matplotlib
        except ImportError:
            return print("no plot: matplotlib is not installed", file=sys.stderr)
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
        figure, axes = plt.subplots(figsize=(7, 0.35 * len(results) + 1.2))
        for at, (method, (tried, best, runs)) in enumerate(results.items()):
            values = [self.factor * value for run in runs.values() if (value := run.value(self.metric)) is not None]
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
