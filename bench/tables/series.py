"""Runs the experiments of one table: chooses learning rates on validation data, then trains with several seeds.

A script of this folder describes one table and calls Table.main(). docs/tables/NAME.csv gets a row when a run ends. A
run with a row is not repeated, so an interrupted script continues when it is called again, also on another machine.
Remove the file to measure all runs again, or use --repeat to measure rows of the table again and compare. At the end,
the script prints the table as Markdown and draws docs/plots/table_NAME.png. update_page.py writes the tables into
docs/convergence.md and docs/ablations.md.
"""
import argparse
import concurrent.futures
import csv
import datetime
import json
import os
import pathlib
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading

root = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(root / "bench"))
import sources
STEP = 2  # factor between neighboring learning rates
PATIENCE = 1800  # seconds that a worker waits for others; at low priority, a run can pause for minutes
ON_GPU = "--device cuda --set share_gpu=true"  # of runs with --gpu
ZEROPP = {"zeropp", "loco_zeropp"}  # exchanges whose rows have the note
ZEROPP_NOTE = ("Without the secondary shards of ZeRO++ within a node (hpZ); gradients take one hop instead of the two of ZeRO++ (qgZ): "
               "[differences](methods/exchanges.md#differences-from-zero).")


def rounded(rate):
    return float(f"{rate:.1e}")


class Rows:
    """The rows of a CSV file, one for each run. A row is appended when a run ends."""

    FIELDS = ("method", "lr", "data", "seed", "value", "bytes_between_nodes_per_step", "core_seconds", "commit", "machine", "date", "command")

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


def on_any_device(command):
    """The command of a row without the flags of --gpu."""
    return command.replace(f" {ON_GPU}", "")


def short_commit(name):
    """The short hash of a commit of the checkout. Ends the program if there is none of this name."""
    result = subprocess.run(["git", "rev-parse", "--short", "--verify", f"{name}^{{commit}}"], cwd=root, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{name}: no such commit in {root}")
    return result.stdout.strip()


def refusals(commands, programs):
    """The commands that their programs reject, each with the program's message. Trains nothing. Tries commands that
    differ only in learning rate and seed once."""
    different = {re.sub(r" (--lr|--seed) \S+", "", command): command for command in commands}

    def refusal(command):
        program, *flags = shlex.split(command)
        result = subprocess.run([programs / program, *flags, "--print-config"], cwd=root, capture_output=True, text=True)
        return f"{command}\n{result.stderr}" if result.returncode else None

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(filter(None, pool.map(refusal, different.values())))


class Run:
    """One training run."""

    def __init__(self, table, method, rate, seed, validates):
        self.table, self.validates = table, validates
        self.labels = {"method": method, "lr": f"{rate:g}", "data": "validation" if validates else "test", "seed": str(seed)}
        self.folder = table.folder / "-".join(self.labels.values())
        self.flags = [*table.flags, *table.methods[method][1], "--lr", f"{rate:g}", "--seed", str(seed)]
        if validates:
            self.flags += table.validation
        if table.on_gpu:
            self.flags += ON_GPU.split()

    def row(self):
        return self.table.rows.rows.get(Rows.key(self.labels))

    def command(self):
        """The command for readers, with names instead of paths of folders."""
        return " ".join([f"./{self.table.program}", *(part for flag, (name, _) in self.table.folders.items() for part in (flag, name)), *self.flags])

    def train(self):
        """Trains unless the run has a row. The value of a diverged run is "diverged"; other failures are errors."""
        if not self.row():
            row = self.measured()
            self.table.rows.add(row)
            print(f"{self.folder.name}: {row['value']}, {row['core_seconds']} core-seconds", file=sys.stderr, flush=True)

    def measured(self):
        """The row of a new run."""
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
               "commit": self.table.commit, "machine": self.table.machine, "date": f"{datetime.date.today()}", "command": self.command()}
        if not diverged:
            metric = self.table.validation_metric if self.validates else self.table.metric
            values = [line[metric] for line in map(json.loads, open(self.folder / "metrics.jsonl")) if metric in line]
            summary = json.load(open(self.folder / "summary.json"))
            sent = sum(phase["bytes_inter"] for phase in summary["phases"]) / summary["steps"]
            value = "diverged" if values[-1] is None else f"{values[-1]:.6g}"  # null: not finite
            row.update(value=value, bytes_between_nodes_per_step=f"{sent:.0f}")
        return row

    def value(self):
        """The metric of the last evaluation; None if the run diverged or is missing."""
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
        self.folders, self.commit, self.machine, self.on_gpu = {}, "", "", False

    def choose(self, method):
        """(metric on validation data by tried rate, best rate). Extends the grid until the best rate has a neighbor on
        each side, or most_rates are tried. Includes rates of other rows, such as those of an earlier first rate."""
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
            best = self.best_of(tried)
            wanted = []
            if len(tried) < self.most_rates and tried[best] is not None:
                if best == min(tried):
                    wanted = [rounded(best / STEP)]
                elif best == max(tried):
                    wanted = [rounded(best * STEP)]
        for row in self.rows.rows.values():
            if row["method"] == method and row["data"] == "validation":
                rate = float(row["lr"])
                tried.setdefault(rate, Run(self, method, rate, 1, True).value())
        return tried, self.best_of(tried)

    def best_of(self, tried):
        worst = float("-inf") if self.better is max else float("inf")
        return self.better(tried, key=lambda rate: worst if tried[rate] is None else tried[rate])

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
        parser.add_argument("--programs", type=lambda path: pathlib.Path(path).resolve(), help="folder of built programs [build/release, built first]; needs --commit")
        parser.add_argument("--commit", metavar="HASH", help="commit from which --programs were built, for the rows")
        parser.add_argument("--machine", default="this", help="name of this machine, for the rows [%(default)s]")
        parser.add_argument("--gpu", action="store_true", help="train on a GPU, which all workers share")
        parser.add_argument("--repeat", action="store_true", help="train the rows of the table again and print old and new values; changes no file of docs")
        parser.add_argument("--lr", type=float, help="with --repeat: another learning rate than that of the table")
        parser.add_argument("--flags", type=shlex.split, default=[], help="with --repeat: further flags of the program, as one word")
        parser.add_argument("--print", action="store_true", help="print what has been measured, without further runs")
        parser.add_argument("--plot", action="store_true", help="draw what has been measured, without further runs")
        parser.add_argument("--check", action="store_true", help="only test that the programs accept the command of every row")
        arguments = parser.parse_args()
        unknown = set(arguments.methods.split(",") if arguments.methods else []) - set(self.methods)
        if unknown:
            parser.error(f"no such method: {', '.join(sorted(unknown))}; available: {', '.join(self.methods)}")
        self.only_prints = arguments.print or arguments.plot or arguments.repeat
        self.machine, self.on_gpu = arguments.machine, arguments.gpu
        if arguments.programs and not (arguments.commit or self.only_prints or arguments.check):
            parser.error("--programs needs --commit HASH: rows name the commit from which the programs were built")
        if (arguments.lr or arguments.flags) and not arguments.repeat:
            parser.error("--lr and --flags need --repeat: runs of the table have the rates and flags of this script")
        if arguments.commit and not arguments.programs:
            parser.error("--commit is the commit of --programs DIR; programs built here are of the checkout's commit")
        if not (self.only_prints or arguments.check):
            self.commit = short_commit(arguments.commit) if arguments.commit else sources.commit()
        for flag, content in self.needs.items():
            path = getattr(arguments, flag[2:].replace("-", "_"), None)
            if content and not path and not (arguments.print or arguments.plot or arguments.check):
                parser.error(f"{flag} FOLDER is needed: {content}")
            if content:
                self.folders[flag] = flag[2:].upper().replace("INIT-", ""), path
        self.programs = arguments.programs or root / "build" / "release"
        if not (arguments.print or arguments.plot or arguments.programs):
            subprocess.run([root / "scripts" / "build", "release", self.program], check=True)
        return arguments

    def main(self):
        arguments = self.parse()
        if arguments.check:
            return self.check()
        methods = arguments.methods.split(",") if arguments.methods else list(self.methods)
        seeds = [int(seed) for seed in arguments.seeds.split(",")]
        if arguments.repeat:
            return self.repeat(methods, seeds, arguments.lr, arguments.flags)
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            results = dict(zip(methods, pool.map(lambda method: self.measure(method, seeds), methods)))
        self.only_prints = True
        if not arguments.plot:
            self.print_table(results, seeds)
        if not arguments.print:
            self.plot(results)

    def repeat(self, methods, seeds, rate, flags):
        """Trains the test runs of the methods again, with the learning rates of the table unless rate is given, and with further flags."""
        for method in methods:
            for seed in seeds:
                run = Run(self, method, rate or self.choose(method)[1], seed, False)
                run.folder = self.folder / "repeated" / run.folder.name
                run.flags += flags
                old, new = None if flags else run.row(), run.measured()
                print(f"{method}, seed {seed}: {old['value'] if old else 'not measured'}, now {new['value']}", flush=True)

    def check(self):
        """Ends with an error if a row's command differs from the script's, or if the program rejects a command."""
        methods = [Run(self, method, rate, 1, self.validation is not None) for method, (rate, _) in self.methods.items()]
        commands = [run.command() for run in methods]
        for row in self.rows.rows.values():
            command = on_any_device(row["command"])
            commands.append(command)
            if row["method"] not in self.methods:
                sys.exit(f"{self.rows.path}: method {row['method']}: bench/tables/{self.name}.py has no such method")
            now = Run(self, row["method"], float(row["lr"]), int(row["seed"]), row["data"] == "validation").command()
            if command != now:
                sys.exit(f"{self.rows.path}: {row['method']}, rate {row['lr']}, seed {row['seed']}: the command is\n{command}\n"
                         f"but bench/tables/{self.name}.py runs\n{now}")
        if refused := refusals(commands, self.programs):
            sys.exit(f"{self.name}: " + "\n".join(refused))

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
            spread = f" ± {float(f'{statistics.stdev(values):.2g}'):g}" if len(values) > 1 else ""
            mean = f"{statistics.mean(values):.4g}{spread}" if values else "–"
            sent = [int(run.row()["bytes_between_nodes_per_step"]) for run in runs.values() if run.value() is not None]
            count = "" if len(values) == most else f" ({len(values)} {'seed' if len(values) == 1 else 'seeds'}{f', {diverged} diverged' if diverged else ''})"
            first = next(iter(self.methods))
            difference = "" if method == first else self.difference(runs, {seed: Run(self, first, self.choose(first)[1], seed, False) for seed in runs})
            note = " ¹" if ZEROPP & set(self.methods[method][1]) else ""
            print(f"| {method}{note} | {mean}{count} | {difference} | {shown} | {f'{sent[0]:,.0f}' if sent else '–'} |")
        if any(ZEROPP & set(self.methods[method][1]) for method in started):
            print(f"\n¹ {ZEROPP_NOTE}")
        on_gpu = sum(ON_GPU in row["command"] for row in self.rows.rows.values())
        print(f"\n`bench/tables/{self.name}.py{' --gpu' if on_gpu == len(self.rows.rows) else ''}`: {len(self.rows.rows)} runs{f', {on_gpu} of them on a GPU' if 0 < on_gpu < len(self.rows.rows) else ''}, "
              f"{sum(float(row['core_seconds']) for row in self.rows.rows.values()) / 3600:.1f} core-hours.",
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
