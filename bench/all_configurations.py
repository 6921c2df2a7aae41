#!/usr/bin/env python3
"""Starts every configuration of configs/ and checks that its loss is finite and falls.

  bench/all_configurations.py --data FOLDER [--seconds 30] [--steps 300] [--machine NAME] [--print] [CONFIG.json...]

FOLDER contains cifar10 (binary files), tiny-imagenet-20 (class folders), ptb, squad, sst2 and
tinyshakespeare/input.txt. Data sets and initial weights that a configuration names but FOLDER does not contain are
replaced: CIFAR-100 by CIFAR-10, ImageNet by Tiny ImageNet, GLUE by SST-2, Wikipedia by the King James Bible, other texts
by tiny Shakespeare, weights by random values.

docs/tables/all_configurations.csv gets one or two rows for each configuration:
  start   the configuration with its schedule, ended after --seconds of CPU time. Only clusters of more than 8 workers,
          and batches for which two cores have no time, are smaller.
  whole   configurations that are too large for two cores, and methods with a warm-up: a small model, and run and
          schedule shortened in proportion to --steps steps, so that every phase of the schedule is run.
A row has the flags that were added to the configuration, the mean loss of the first twentieth (at most ten) of the steps
and of the last quarter, and a result:
  falls     the loss of every step is finite, and the last mean is lower than the first one
  rises     the last mean is higher
  diverged  a loss or gradient is not finite
A row is not measured again, so an interrupted script continues. One program runs at a time. Cost with the defaults: about
1.5 core-hours; at most 3 GiB of memory.
"""
import argparse
import csv
import datetime
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

import sources

root = pathlib.Path(__file__).resolve().parent.parent
TABLE = root / "docs/tables/all_configurations.csv"
COLUMNS = ["configuration", "run", "result", "steps", "first_loss", "last_loss", "cpu_seconds", "commit", "machine", "date", "flags"]
PAIR = "--nodes 2 --workers-per-node 1"  # instead of a larger cluster
# Samples of an epoch: of the original data set, for the steps of a whole run, and of the data set that replaces it.
IMAGENET, TINY_IMAGENET, CIFAR, SQUAD, SST2 = 1281167, 5000, 50000, 88000, 67349
SMALL_IMAGES = "--set data.crop=32 --set data.resize=32 --batch 16"
SMALL_TEXT = "--tokenizer characters --context 64 --batch 4 --accumulation 1 --set generate.tokens=0"
SMALL_LLAMA = f"{SMALL_TEXT} --set model.n_layer=4 --set model.n_head=4 --set model.n_kv_head=4 --set model.n_embd=128 --set model.n_inner=352"
SMALL_LSTM = "--set model.embedding=200 --set model.hidden=200"
# Prefix of the configuration: program, data, further flags of the run `start` (None: the model is too large), small model
# of the run `whole`, samples of an epoch (original, here). The first matching row counts.
ROWS = [
    ("bert/large_batch", "train_bert", None, None, "--model bert_tiny --batch 4 --accumulation 1", None),
    ("bert/length_128", "train_bert", None, "--batch 2", "--model bert_tiny --batch 4", None),
    ("bert/length_512", "train_bert", None, "--batch 1", "--model bert_tiny --batch 1", None),
    ("cifar10/resnet18", "train_resnet", "cifar10", "", "--set model.small_stem=false --batch 16", (CIFAR, CIFAR)),
    ("cifar100/vgg16", "train_resnet", "cifar10", "", "--dtype bf16 --nodes 2 --batch 8", (CIFAR, CIFAR)),
    ("cifar", "train_resnet", "cifar10", "", None, None),
    ("fashion", "train_resnet", None, "", None, None),
    ("glue", "train_bert", "sst2", "--model bert_base --batch 4", "--model bert_tiny --batch 8", (SST2, SST2)),
    ("gpt2", "train_gpt", "tinyshakespeare/input.txt", f"{SMALL_TEXT} --batch 1 --context 256", f"--model gpt2_nano {SMALL_TEXT}", None),
    ("imagenet/resnet18", "train_resnet", "tiny-imagenet-20", "", SMALL_IMAGES, (IMAGENET, TINY_IMAGENET)),
    ("imagenet/resnet50", "train_resnet", "tiny-imagenet-20", "--batch 8", f"--model resnet18 {SMALL_IMAGES}", (IMAGENET, TINY_IMAGENET)),
    ("imagenet/vit_b_16", "train_resnet", "tiny-imagenet-20", "--batch 4", f"--model vit_tiny {SMALL_IMAGES}", (IMAGENET, TINY_IMAGENET)),
    ("loco/gpt2_medium", "train_gpt", "tinyshakespeare/input.txt", None, f"--model gpt2_nano {SMALL_TEXT}", None),
    ("loco/llama_0_8b", "train_gpt", "tinyshakespeare/input.txt", None, SMALL_LLAMA, None),
    ("loco/llama2", "train_gpt", "tinyshakespeare/input.txt", None, f"--model llama_nano {SMALL_TEXT}", None),
    ("loco/mixtral_code", "train_gpt", "tinyshakespeare/input.txt", None, f"--model mixtral_nano {SMALL_TEXT} --set exchange.scale=auto", None),
    ("loco/mixtral", "train_gpt", "tinyshakespeare/input.txt", None, f"--model mixtral_nano {SMALL_TEXT}", None),
    ("loco/sky_moe", "train_gpt", "tinyshakespeare/input.txt", None, SMALL_LLAMA, None),
    ("mlm", "train_bert", None, "", None, None),
    ("ptb/full", "train_lm", "ptb", None, f"--nodes 2 {SMALL_LSTM}", (929589 // 70, 929589 // 70)),
    ("ptb/zaremba/large", "train_lm", "ptb", "", SMALL_LSTM, (929589 // 35, 929589 // 35)),
    ("ptb", "train_lm", "ptb", "", None, None),
    ("shakespeare", "train_gpt", "tinyshakespeare/input.txt", "", None, None),
    ("squad/bert_base", "train_bert", "squad", "--model bert_base --batch 1", "--model bert_tiny --set data.test_limit=50", (SQUAD, SQUAD)),
    ("squad", "train_bert", "squad", "", None, None),
    ("sst2", "train_bert", "sst2", "", None, None),
    ("tiny_imagenet", "train_resnet", "tiny-imagenet-20", "", None, None),
]


def flag_of(flags, name, default):
    """The last value of a flag in a list of flags."""
    values = [int(flags[at + 1]) for at, flag in enumerate(flags) if flag == name]
    return values[-1] if values else default


def shortened(config, flags, steps, samples):
    """The flags that shorten a run, and its schedule in proportion, to `steps` steps."""
    workers = config.get("nodes", 1) * config.get("workers_per_node", 1)
    batch = config["batch"] * config.get("accumulation", 1) * workers
    here = flag_of(flags, "--batch", config["batch"]) * flag_of(flags, "--nodes", config.get("nodes", 1)) * flag_of(
        flags, "--workers-per-node", config.get("workers_per_node", 1))
    epochs = config.get("epochs", 3)
    factor = steps / config.get("max_steps", 0) if "max_steps" in config else steps * batch / (samples[0] * epochs) if samples else 0
    schedule, optimizer = config.get("schedule", {}), config["optimizer"]
    result = {"max_steps": steps}
    for key in ("warmup_steps", "doubling_steps"):
        if key in optimizer:
            result[f"optimizer.{key}"] = max(1, round(factor * optimizer[key]))
    if "warmup_steps" in schedule:
        result["schedule.warmup_steps"] = max(1, round(factor * schedule["warmup_steps"]))
    if "decay_steps" in schedule:
        result |= {"schedule.decay_steps": 1, "schedule.decay_factor": f"{schedule['decay_factor'] ** (1 / (factor * schedule['decay_steps'])):.6g}"}
    if "milestones" in schedule or "warmup_epochs" in schedule:
        factor = steps * here / (samples[1] * epochs)
    if "milestones" in schedule:
        result["schedule.milestones"] = ",".join(f"{factor * epoch:.4g}" for epoch in schedule["milestones"])
    if "warmup_epochs" in schedule:
        result["schedule.warmup_epochs"] = f"{factor * schedule['warmup_epochs']:.4g}"
    if "max_steps" in config:
        result["epochs"] = 100000
    return [part for key, value in result.items() for part in ("--set", f"{key}={value}")]


def runs_of(name, config, steps):
    """The runs of a configuration: (start or whole, program, data, flags)."""
    _, program, data, start, small, samples = next(row for row in ROWS if name.startswith(row[0]))
    cluster = PAIR.split() if config.get("nodes", 1) * config.get("workers_per_node", 1) > 8 else []
    if small is not None:
        flags = cluster + small.split()
        yield "whole", program, data, flags + shortened(config, flags, steps, samples)
    if start is not None:
        yield "start", program, data, cluster + start.split()


def cpu_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def train(program, config, data, flags, seconds, folder):
    """Trains until the end of the run, or until it has used `seconds` of CPU time. Returns its losses, whether it diverged, and
    its CPU time."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "configuration.json").write_text(json.dumps({key: value for key, value in config.items() if key != "init_weights"}))
    command = [root / "build/release" / program, "--config", folder / "configuration.json", *(["--data", data] if data else []), *flags,
               "--set", "log_every=1", "--set", "timeout_s=1800", "--run-dir", folder / "run"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(list(map(str, command)), cwd=root, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        killed = False
        while not os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            time.sleep(0.2)
            if not killed and seconds and cpu_seconds(process) > seconds:
                process.send_signal(signal.SIGKILL)  # SIGTERM would write a checkpoint
                killed = True
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    text = (folder / "log").read_text()
    diverged = process.returncode == 1 and re.search("loss is -?(nan|inf)|not finite", text)
    if process.returncode and not diverged and not killed:
        raise RuntimeError(f"{' '.join(map(str, command))}\nended with status {process.returncode}: {text}")
    metrics = folder / "run/metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True) if metrics.exists() else []
    losses = [line["loss"] for line in map(json.loads, (line for line in lines if line.endswith("\n"))) if "loss" in line]
    return losses, diverged, used.ru_utime + used.ru_stime


def measure(name, kind, program, data, flags, arguments):
    """The row of a run."""
    config = json.loads((root / "configs" / name).read_text())
    folder = root / "runs/all_configurations" / f"{name.removesuffix('.json').replace('/', '-')}-{kind}"
    losses, diverged, used = train(program, config, arguments.data / data if data else None, flags, arguments.seconds if kind == "start" else 0, folder)
    if not diverged and len(losses) < 4:
        raise RuntimeError(f"{name}, {kind}: only {len(losses)} steps; use more --seconds")
    first, last = losses[: max(1, min(10, len(losses) // 20))], losses[-max(1, len(losses) // 4) :]
    diverged = diverged or None in losses  # null: not finite
    row = {"configuration": name, "run": kind, "result": "diverged", "steps": len(losses), "cpu_seconds": f"{used:.1f}", "flags": " ".join(flags),
           "commit": arguments.commit, "machine": arguments.machine, "date": f"{datetime.date.today()}"}
    if not diverged:
        first, last = statistics.mean(first), statistics.mean(last)
        row |= {"first_loss": f"{first:.4f}", "last_loss": f"{last:.4f}", "result": "falls" if last < first else "rises"}
    return row


def read_rows():
    return list(csv.DictReader(TABLE.open(newline=""))) if TABLE.exists() else []


def add_row(row):
    new = not TABLE.exists()
    with TABLE.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def print_table(all_runs):
    rows = {(row["configuration"], row["run"]): row for row in read_rows()}
    print("| run | configurations | measured | loss falls | steps | core-hours |\n|---|---|---|---|---|---|")
    for kind in ("start", "whole"):
        keys = [key for key in all_runs if key[1] == kind]
        done = [rows[key] for key in keys if key in rows]
        steps = " to ".join(str(n) for n in sorted({bound(int(row["steps"]) for row in done) for bound in (min, max)})) if done else "–"
        print(f"| {kind} | {len(keys)} | {len(done)} | {sum(row['result'] == 'falls' for row in done)} | {steps} | "
              f"{sum(float(row['cpu_seconds']) for row in done) / 3600:.2f} |")
    for row in rows.values():
        if row["result"] != "falls":
            print(f"\n{row['configuration']}, {row['run']}: {row['result']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", metavar="CONFIG.json", type=lambda path: pathlib.Path(path).resolve(), help="default: all")
    parser.add_argument("--data", type=lambda path: pathlib.Path(path).resolve(), help="folder with the data sets")
    parser.add_argument("--seconds", type=float, default=30, help="CPU time of a run `start` [%(default)s]")
    parser.add_argument("--steps", type=int, default=300, help="steps of a run `whole` [%(default)s]")
    parser.add_argument("--machine", default="this", help="name of this machine, for the rows [%(default)s]")
    parser.add_argument("--run", choices=["start", "whole"], help="only these runs")
    parser.add_argument("--print", action="store_true", help="print what has been measured, without further runs")
    arguments = parser.parse_args()
    configs = root / "configs"
    names = [str(path.relative_to(configs)) for path in arguments.configs or sorted(configs.rglob("*.json"))]
    runs = {(name, kind): rest for name in names for kind, *rest in runs_of(name, json.loads((configs / name).read_text()), arguments.steps)
            if arguments.run in (None, kind)}
    if not arguments.print:
        if not arguments.data:
            parser.error("--data FOLDER is needed")
        arguments.commit = sources.commit()
        subprocess.run([root / "scripts/build", "release", "train_resnet", "train_bert", "train_gpt", "train_lm"], check=True, cwd=root)
        done = {(row["configuration"], row["run"]) for row in read_rows()}
        failed = []
        for key in [key for key in runs if key not in done]:
            try:
                row = measure(*key, *runs[key], arguments)
            except RuntimeError as error:  # the other configurations are still run
                failed.append(key)
                print(f"{key[0]}, {key[1]}: failed: {error}", file=sys.stderr, flush=True)
                continue
            add_row(row)
            print(f"{key[0]}, {key[1]}: {row['result']}, {row['steps']} steps, {row.get('first_loss')} to {row.get('last_loss')}, {row['cpu_seconds']} core-seconds", flush=True)
        if failed:
            sys.exit(f"{len(failed)} runs failed")
    print_table(runs)


if __name__ == "__main__":
    main()
