#!/usr/bin/env python3
"""Trains every configuration with every seed, then prints a table of the results and draws the curves.

  python3 bench/convergence.py --data FOLDER [--program train_bert] [--seeds 1,2,3] [--out runs/cifar10] [--jobs 2] [--plot FILE]
      CONFIG.json … [-- flags of the program, such as --epochs 4 --lr 0.01]

Columns of the table:
  seed …, mean                    last evaluation of the run with this seed, mean over the seeds
  within nodes, between nodes     bytes that all workers send per step, mean over the run
  state                           state of a worker in bytes per parameter, mean over the workers
  step, ms                        median time of a step; compare only runs on an otherwise idle machine
Bytes, state and step time come from the run with the first seed.

A finished run of the same sources, program, configuration, data and flags is not repeated, so a second call continues
an interrupted series. A configuration or seed that fails has an empty cell, and the exit code is then 1. --plot needs
matplotlib.
"""
import argparse
import concurrent.futures
import functools
import hashlib
import json
import pathlib
import shutil
import statistics
import subprocess
import sys

# Metrics of an evaluation: key, label, factor for the table. Runs are compared by the first of these metrics that they
# have.
METRICS = (("test_top1", "test top-1, %", 100), ("validation_top1", "validation top-1, %", 100), ("test_accuracy", "accuracy, %", 100),
           ("validation_accuracy", "validation accuracy, %", 100), ("f1", "F1", 1), ("mlm_loss", "masked words' loss", 1),
           ("val_loss", "validation loss", 1))

root = pathlib.Path(__file__).resolve().parent.parent


def read_metrics(folder):
    """The lines of metrics.jsonl of a finished run; None if the run did not finish."""
    if not (folder / "weights.safetensors").exists() and not (folder / "model").exists():
        return None
    metrics = [json.loads(line) for line in open(folder / "metrics.jsonl")]
    return None if any("interrupted" in m for m in metrics) else metrics


@functools.cache
def version(program):
    """Builds the program. Returns what it prints about its sources and libraries."""
    return subprocess.run([root / program, "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout


def folder_of(out, program, config, seed, data, flags):
    """The folder of a run. Its name contains a hash of the program and its version, configuration, data and flags."""
    settings = json.dumps([program, version(program), config.read_text(), str(data), flags])
    return out / f"{config.stem}-{seed}-{hashlib.sha256(settings.encode()).hexdigest()[:8]}"


def run(program, config, seed, data, out, flags):
    """Trains one configuration unless its run is finished. Returns the lines of metrics.jsonl; None if the run failed."""
    folder = folder_of(out, program, config, seed, data, flags)
    if read_metrics(folder) is None:
        shutil.rmtree(folder, ignore_errors=True)
        command = [root / "build" / "release" / program, "--config", config, *(["--data", data] if data else []), "--seed", str(seed), "--run-dir", folder, *flags]
        print("==", " ".join(map(str, command)), file=sys.stderr, flush=True)
        if subprocess.run(list(map(str, command)), stdout=subprocess.DEVNULL, cwd=root).returncode:
            return None
    return read_metrics(folder)


def metric_of(metrics):
    """The row of METRICS by which the runs are compared."""
    return next(row for row in METRICS if any(row[0] in m for m in metrics))


def costs(folder, metrics):
    """The cells of the table for bytes, state and time of a run."""
    accounts = json.load(open(folder / "summary.json"))
    sent = [sum(phase[level] for phase in accounts["phases"]) / accounts["steps"] for level in ("bytes_intra", "bytes_inter")]
    state = sum(part["bytes_per_parameter"] for part in accounts["state"])
    return [f"{sent[0]:,.0f}", f"{sent[1]:,.0f}", f"{state:.2f}", f"{1000 * statistics.median(m['step_s'] for m in metrics if 'step_s' in m):.1f}"]


def plot(results, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    figure, (loss, accuracy) = plt.subplots(1, 2, figsize=(11, 4))
    for name, runs in results.items():
        metrics = next(iter(runs.values()))
        train = [m for m in metrics if "loss" in m]
        smooth, value, new = [], None, max(0.05, min(1, 20 / len(train)))
        for m in train:  # moving average, to make the curves distinguishable
            value = m["loss"] if value is None else (1 - new) * value + new * m["loss"]
            smooth.append(value)
        loss.plot([m["step"] for m in train], smooth, label=name, linewidth=1)
        key, label, factor = metric_of(metrics)
        tests = [m for m in metrics if key in m]
        accuracy.plot([m["step"] for m in tests], [factor * m[key] for m in tests], label=name, linewidth=1, marker=".")
    loss.set(xlabel="step", ylabel="training loss", yscale="log")
    accuracy.set(xlabel="step", ylabel=label)
    accuracy.legend()
    for axes in (loss, accuracy):
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path)


def main():
    own, flags = sys.argv[1:], []
    if "--" in own:
        own, flags = own[: own.index("--")], own[own.index("--") + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="+", metavar="CONFIG.json", type=pathlib.Path)
    parser.add_argument("--data", type=lambda path: pathlib.Path(path).resolve(), help="data of all runs whose configurations do not set it")
    parser.add_argument("--program", default="train_resnet", help="training program [%(default)s]")
    parser.add_argument("--seeds", default="1", help="seeds, separated by commas [%(default)s]")
    parser.add_argument("--out", type=pathlib.Path, default=root / "runs" / "convergence", help="folder of the runs [runs/convergence]")
    parser.add_argument("--jobs", type=int, default=1, help="concurrent runs [1]; more runs slow down each step but do not change the results")
    parser.add_argument("--plot", metavar="FILE", help="draw the curves to this file")
    arguments = parser.parse_args(own)
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    results, out = {}, arguments.out.resolve()
    configs = {config.stem: config.resolve() for config in arguments.configs}
    if len(configs) < len(arguments.configs):
        parser.error("two configurations have the same file name, which names the rows of the table")
    version(arguments.program)  # before the threads
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        done = {(name, seed): pool.submit(run, arguments.program, config, seed, arguments.data, out, flags)
                for name, config in configs.items() for seed in seeds}
    failed = 0
    for (name, seed), run_of_seed in done.items():
        if run_of_seed.result() is None:
            failed = 1
            print(f"{name}, seed {seed}: failed", file=sys.stderr)
        else:
            results.setdefault(name, {})[seed] = run_of_seed.result()
    if not results:
        return 1
    key, label, factor = metric_of(next(iter(next(iter(results.values())).values())))
    print(f"| {label} | " + " | ".join(f"seed {seed}" for seed in seeds) + " | mean | within nodes | between nodes | state | step, ms |")
    print("| --- |" + " --- |" * (len(seeds) + 5))
    for name in configs:
        runs = results.get(name)
        if not runs:
            print(f"| {name} |" + " – |" * (len(seeds) + 5))
            continue
        last = {seed: factor * [m[key] for m in metrics if key in m][-1] for seed, metrics in runs.items()}
        cells = [f"{last[seed]:.2f}" if seed in last else "–" for seed in seeds]
        first = next(iter(runs))
        cells += [f"{statistics.mean(last.values()):.2f}", *costs(folder_of(out, arguments.program, configs[name], first, arguments.data, flags), runs[first])]
        print(f"| {name} | " + " | ".join(cells) + " |")
    if arguments.plot:
        plot(results, arguments.plot)
    return failed


if __name__ == "__main__":
    sys.exit(main())
