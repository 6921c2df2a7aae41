#!/usr/bin/env python3
"""Step times of methods on emulated hosts with slow links: optimizer × hosts × rate × model.

  sudo bench/scaling.py [--models bert_base,resnet50] [--hosts 4] [--rates 1gbit,100mbit] [--methods dense_f32,birder] [--print]

Every cell is a short training run under tools/netlab. For each model and rate, the script prints throughput, speed-up
over the dense float32 baseline, scaling efficiency (throughput over hosts × throughput of one host), the parts of a
step and the bytes between hosts. It draws docs/plots/scaling.png. docs/tables/scaling.csv gets a row when a run ends; a
cell with a row is not measured again. The hosts share this machine's cores. Therefore, every worker computes with one
thread, and computation is slower than on real hosts. netlab refuses rates that the machine does not reach, such as
10gbit on most machines with two cores. Takes about 30 minutes on two idle cores. Needs root.
"""
import argparse
import collections
import csv
import datetime
import gzip
import json
import pathlib
import shutil
import statistics
import subprocess
import sys

import sources

root = pathlib.Path(__file__).resolve().parent.parent
table_file = root / "docs" / "tables" / "scaling.csv"
congestion = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control")
SKIPPED = 3  # first steps: allocation, kernel selection, and the warm-up of 1-bit Adam

# Samples per worker. With these numbers, dense float32 gradients at 1gbit take about 10 (BERT) and 2.5 (ResNet-50)
# times the computation, as on the testbed of the Birder paper. For bert_base_4, this ratio is reached at 330mbit.
BERT_BASE = ["train_bert", "--task", "pretrain", "--model", "bert_base", "--dtype", "bf16"]
MODELS = {
    "bert_base": [*BERT_BASE, "--batch", "1"],
    "bert_base_4": [*BERT_BASE, "--batch", "4"],
    "resnet50": ["train_resnet", "--model", "resnet50", "--set", "model.small_stem=true", "--batch", "12", "--dtype", "bf16"],
}
BASELINES = {"bert_base": "bert_adam", "bert_base_4": "bert_adam", "resnet50": "sgdm"}  # optimizers behind the exchanges
FEW_WARMUP_STEPS = ["--set", "optimizer.warmup=fixed", "--set", f"optimizer.warmup_steps={SKIPPED - 1}", "--set", "optimizer.refresh_variance=false"]


LONGEST_INTERVAL = 16  # steps of 0/1 Adam: figures are means over these steps; for other methods, medians


def zero_one_adam(interval):
    """A synchronization in every `interval` steps. In the paper, runs synchronize in 46 % of all steps, and in every 16th step at the end."""
    return ["--set", "optimizer.intervals=fixed", "--set", f"optimizer.max_interval={interval}", "--set", f"optimizer.warmup_steps={SKIPPED}",
            "--set", f"optimizer.freeze_step={SKIPPED}", "--set", "optimizer.refresh_variance=false"]


METHODS = {  # "BASELINE" stands for the optimizer of the model
    "dense_f32": ["--optimizer", "BASELINE"],
    "dense_bf16": ["--optimizer", "BASELINE", "--set", "exchange.wire=bf16"],
    "hierarchical_f32": ["--optimizer", "BASELINE", "--exchange", "hierarchical"],
    "hierarchical_bf16": ["--optimizer", "BASELINE", "--exchange", "hierarchical", "--set", "exchange.wire=bf16"],
    "one_bit_adam": ["--optimizer", "one_bit_adam", *FEW_WARMUP_STEPS],
    "zero_one_adam_2": ["--optimizer", "zero_one_adam", *zero_one_adam(2)],
    "zero_one_adam_16": ["--optimizer", "zero_one_adam", *zero_one_adam(LONGEST_INTERVAL)],
    "loco_4_bits": ["--optimizer", "BASELINE", "--exchange", "loco"],
    "birder": ["--optimizer", "birder"],
    "birder_compact": ["--optimizer", "birder", "--set", "optimizer.moments=bf16", "--set", "optimizer.errors=int8"],
    "birder_all_gather": ["--optimizer", "birder", "--set", "optimizer.collective=all_gather"],
}
PARTS = {"computation": ("forward", "backward"), "exposed compression": ("exposed_compression", "exposed_update"),
         "exposed communication": ("exposed_communication",), "other": ("data_wait", "idle", "other")}
Cell = collections.namedtuple("Cell", "model method hosts workers rate machine")
FIELDS = (*Cell._fields, "samples_per_s", "step_s", *PARTS, "communication", "mb_between_hosts", "congestion", "date", "commit", "command")


def few_test_images():
    """A folder of Fashion-MNIST with 10 test images, for a short evaluation at the end of a run."""
    folder = root / "runs" / "scaling" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    for file in pathlib.Path("/usr/share/datasets/fashion-mnist").glob("*-ubyte.gz"):
        content = gzip.decompress(file.read_bytes())
        if file.name.startswith("t10k"):
            header = 4 + 4 * content[3]
            bytes_of_one = (len(content) - header) // int.from_bytes(content[4:8], "big")
            content = content[:4] + (10).to_bytes(4, "big") + content[8:header + 10 * bytes_of_one]
        (folder / file.name.removesuffix(".gz")).write_bytes(content)
    return folder.relative_to(root)


def command(cell, steps, run_dir):
    program, *flags = MODELS[cell.model]
    if program == "train_resnet":
        flags += ["--data", str(few_test_images())]
    words = [word.replace("BASELINE", BASELINES[cell.model]) for word in METHODS[cell.method]]
    return [str(root / "build" / "release" / program), *flags, *words, "--max-steps", str(steps), "--set", "log_every=1",
            "--threads", "1", "--set", "timeout_s=300",
            "--set", "checkpoint.at_end=false", "--run-dir", str(run_dir)]


def measure(cell, steps, commit):
    """The row of a cell. One host runs without netlab."""
    middle = statistics.median
    if cell.method.startswith("zero_one_adam"):
        middle, steps = statistics.mean, SKIPPED + LONGEST_INTERVAL
    run_dir = root / "runs" / "scaling" / "-".join(cell[:-1])
    shutil.rmtree(run_dir, ignore_errors=True)
    words = command(cell, steps, run_dir)
    if cell.hosts == "1":
        words += ["--workers-per-node", cell.workers]
    else:
        words = [str(root / "tools" / "netlab"), "--hosts", cell.hosts, "--workers-per-node", cell.workers, "--rate", cell.rate, "--", *words]
    result = subprocess.run(words, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if result.returncode:
        sys.exit(f"{' '.join(words)}\nended with status {result.returncode}: {result.stderr}")
    lines = [line for line in map(json.loads, open(run_dir / "metrics.jsonl")) if "step_s" in line and line["step"] > SKIPPED]
    seconds = lambda *keys: middle(sum(line[key + "_s"] for key in keys) for line in lines)
    samples = lines[0]["samples_per_s"] * lines[0]["step_s"]  # samples of a step
    return {**cell._asdict(), "samples_per_s": f"{samples / seconds('step'):.2f}", "step_s": f"{seconds('step'):.4f}",
            **{part: f"{seconds(*keys):.4f}" for part, keys in PARTS.items()}, "communication": f"{seconds('communication'):.4f}",
            "mb_between_hosts": f"{middle(line['bytes_inter'] for line in lines) / 1e6:.2f}",
            "congestion": "" if cell.hosts == "1" else congestion.read_text().strip(), "date": f"{datetime.date.today()}", "commit": commit,
            "command": " ".join(words).replace(str(root) + "/", "").replace("build/release/", "./")}


class Rows(dict):
    """Rows of the CSV file by cell."""

    def __init__(self):
        if table_file.exists():
            for row in csv.DictReader(open(table_file, newline="")):
                self[Cell(*(row[field] for field in Cell._fields))] = row

    def add(self, cell, row):
        self[cell] = row
        table_file.parent.mkdir(exist_ok=True)
        new = not table_file.exists()
        with open(table_file, "a", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow(row)


def print_table(rows, model, hosts, workers, rate, machine, methods):
    """The rows that exist of one model, number of hosts and rate."""
    cells = {method: rows.get(Cell(model, method, hosts, workers, rate, machine)) for method in methods}
    if not any(cells.values()):
        return
    value = lambda row, field: float(row[field])
    dense = rows.get(Cell(model, "dense_f32", hosts, workers, rate, machine))
    print(f"\n{model}, {hosts} hosts × {workers} workers, {rate}")
    if dense:
        print(f"Dense float32: communication is {value(dense, 'communication') / value(dense, 'computation'):.1f} times the computation.")
    print(f"\n| method | samples/s | speed-up | scaling efficiency | step, s | {' | '.join(part + ', s' for part in PARTS)} | MB between hosts |")
    print("|---" * (6 + len(PARTS)) + "|")
    for method, row in cells.items():
        if not row:
            continue
        alone = rows.get(Cell(model, method, "1", workers, "", machine))
        # All methods have the same batch. samples_per_s has too few digits for ratios.
        speed_up = f"{value(dense, 'step_s') / value(row, 'step_s'):.2f}" if dense else "–"
        efficiency = f"{100 * value(alone, 'step_s') / value(row, 'step_s'):.0f} %" if alone else "–"
        parts = " | ".join(f"{value(row, part):.3f}" for part in PARTS)
        print(f"| {method} | {value(row, 'samples_per_s'):.1f} | {speed_up} | {efficiency} | {value(row, 'step_s'):.3f} | {parts} | {value(row, 'mb_between_hosts'):.1f} |")
    if len({row["commit"] for row in cells.values() if row}) > 1:
        print("\nThe rows are of several commits: " + ", ".join(f"{method} {row['commit']}" for method, row in cells.items() if row) + ".")


def plot(rows, settings, methods):
    try:
        import matplotlib
    except ImportError:
        return print("no plot: matplotlib is not installed", file=sys.stderr)
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = [setting for setting in settings if any(Cell(setting[0], method, *setting[1:]) in rows for method in methods)]
    if not shown:
        return
    figure, all_axes = plt.subplots(1, len(shown), figsize=(4.2 * len(shown), 3.8), squeeze=False, layout="constrained")
    for axes, (model, hosts, workers, rate, machine) in zip(all_axes[0], shown):
        cells = [(method, rows[cell]) for method in methods if (cell := Cell(model, method, hosts, workers, rate, machine)) in rows]
        bottom = [0.0] * len(cells)
        for part in PARTS:
            heights = [float(row[part]) for _, row in cells]
            axes.bar(range(len(cells)), heights, bottom=bottom, label=part)
            bottom = [low + height for low, height in zip(bottom, heights)]
        axes.set_xticks(range(len(cells)), [method for method, _ in cells], rotation=45, ha="right")
        axes.set_title(f"{model}, {hosts} hosts, {rate}")
        axes.set_ylabel("step, s")
    all_axes[0][0].legend(loc="upper right", fontsize="small")
    figure.savefig(root / "docs" / "plots" / "scaling.png", dpi=100)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = lambda text: text.split(",")
    parser.add_argument("--models", type=words, default=list(MODELS), help=f"models, separated by commas, from {', '.join(MODELS)}")
    parser.add_argument("--methods", type=words, help=f"methods, separated by commas, from {', '.join(METHODS)} (all; with one worker per node "
                        "without hierarchical, which then equals dense)")
    parser.add_argument("--hosts", type=words, default=["4"], help="numbers of hosts; 1 for the scaling efficiency (4)")
    parser.add_argument("--workers-per-node", default="1", help="workers on each host (1)")
    parser.add_argument("--rates", type=words, default=["1gbit", "100mbit"], help="rates of each link and direction (1gbit,100mbit)")
    parser.add_argument("--machine", default="this", help="name of this machine in the table, whose other rows are unchanged (%(default)s)")
    parser.add_argument("--steps", type=int, default=SKIPPED + 5, help=f"steps of each run (%(default)s); {SKIPPED + LONGEST_INTERVAL} with 0/1 Adam")
    parser.add_argument("--print", action="store_true", help="print the existing measurements, without further runs and without a plot")
    options = parser.parse_args()
    if options.methods is None:
        options.methods = [method for method in METHODS if options.workers_per_node != "1" or not method.startswith("hierarchical")]
    for names, known in ((options.models, MODELS), (options.methods, METHODS)):
        for name in names:
            if name not in known:
                parser.error(f"'{name}': expects one of {', '.join(known)}")
    if options.steps <= SKIPPED:
        parser.error(f"--steps {options.steps}: expects more than {SKIPPED}")
    settings = [(model, hosts, options.workers_per_node, "" if hosts == "1" else rate, options.machine)
                for model in options.models for hosts in options.hosts for rate in options.rates]
    settings = list(dict.fromkeys(settings))
    rows = Rows()
    if options.print and not any(Cell(model, method, *setting) in rows for model, *setting in settings for method in options.methods):
        parser.error(f"docs/tables/scaling.csv has no such rows of machine '{options.machine}'; it has machines {', '.join(sorted({cell.machine for cell in rows}))}")
    if not options.print:
        programs = sorted({MODELS[model][0] for model in options.models})
        commit = sources.commit()
        subprocess.run([root / "scripts" / "build", "release", *programs], check=True)
        for model, *setting in settings:
            for method in options.methods:
                if (cell := Cell(model, method, *setting)) not in rows:
                    rows.add(cell, measure(cell, options.steps, commit))
                    print(f"{' '.join(cell)}: {rows[cell]['step_s']} s a step", file=sys.stderr, flush=True)
    for setting in settings:
        if setting[1] != "1":
            print_table(rows, *setting, options.methods)
    if not options.print:
        plot(rows, [setting for setting in settings if setting[1] != "1"], options.methods)


if __name__ == "__main__":
    main()
