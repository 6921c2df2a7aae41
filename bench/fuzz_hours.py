#!/usr/bin/env python3
"""Runs every fuzz target for a given CPU time and records the time.

  bench/fuzz_hours.py [--hours 1] [--machine NAME] [--print] [TARGET...]

docs/tables/fuzz.csv has the CPU time and the number of inputs of each target, commit and machine. A target whose rows
add up to --hours of CPU time is not run again, so an interrupted script continues when it is called again, also on
another machine. One target runs at a time. After an input that fails, the script names the input and ends with 1.
"""
import argparse
import csv
import datetime
import math
import os
import pathlib
import re
import subprocess
import sys

import sources

root = pathlib.Path(__file__).resolve().parent.parent
TABLE = root / "docs/tables/fuzz.csv"
COLUMNS = ["target", "cpu_seconds", "inputs", "commit", "machine", "date"]
SLICE = 120  # seconds of wall time at most, after which the table is written
# As in scripts/fuzz, but an input may take 60 s, because the script may run at low priority.
LIMITS = ["-timeout=60", "-malloc_limit_mb=32", "-rss_limit_mb=1024"]


def read_rows():
    return list(csv.DictReader(TABLE.open())) if TABLE.exists() else []


def write_rows(rows):
    temporary = TABLE.with_suffix(".partial")
    with temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: (row["target"], row["date"])))
    temporary.replace(TABLE)


def cpu_seconds(rows, target):
    return sum(float(row["cpu_seconds"]) for row in rows if row["target"] == target)


def run(program, target, duration):
    """Runs a target for a duration in seconds. Returns its CPU time in seconds and the number of inputs."""
    found, failed = root / "build/fuzz/corpus" / target, root / "build/fuzz/failed"
    for folder in (found, failed):
        folder.mkdir(parents=True, exist_ok=True)
    log = root / "build/fuzz" / f"{target}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [program, f"--target={target}", f"-max_total_time={duration}", "-print_final_stats=1", *LIMITS,
             f"-artifact_prefix={failed}/{target}-", found, root / "tests/fuzz/corpus" / target],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        _, status, usage = os.wait4(process.pid, 0)
    text = log.read_text(errors="replace")
    if status != 0:
        sys.exit(f"fuzz_hours: target {target} failed; see {log}; the input is in {failed}")
    inputs = re.search(r"^stat::number_of_executed_units: *(\d+)", text, re.MULTILINE)
    return usage.ru_utime + usage.ru_stime, int(inputs.group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=1, help="CPU time of each target [%(default)s]")
    parser.add_argument("--machine", default="this", help="name of this machine, for the rows [%(default)s]")
    parser.add_argument("--print", action="store_true", help="print the CPU time of each target, without further runs")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all")
    args = parser.parse_args()
    all_targets = sorted(path.name for path in (root / "tests/fuzz/corpus").iterdir())
    for target in args.targets:
        if target not in all_targets:
            parser.error(f"no target '{target}'; expected one of: {', '.join(all_targets)}")
    targets = args.targets or all_targets
    if not args.print:
        commit = sources.commit()
        for command in (["scripts/setup"], ["scripts/setup", "--fuzz"], ["scripts/build", "asan", "fuzz"]):
            subprocess.run([root / command[0], *command[1:]], check=True, cwd=root)
        for target in targets:
            while (missing := 3600 * args.hours - cpu_seconds(rows := read_rows(), target)) > 0:
                seconds, inputs = run(root / "build/asan/fuzz", target, min(SLICE, math.ceil(missing) + 1))
                key = {"target": target, "commit": commit, "machine": args.machine}
                row = next((row for row in rows if key.items() <= row.items()), None)
                if row is None:
                    rows.append(row := {**key, "cpu_seconds": "0", "inputs": "0"})
                row["cpu_seconds"] = f"{float(row['cpu_seconds']) + seconds:.1f}"
                row["inputs"] = str(int(row["inputs"]) + inputs)
                row["date"] = datetime.date.today().isoformat()
                write_rows(rows)
            print(f"{target}: {cpu_seconds(read_rows(), target):.0f} s of CPU time", flush=True)
    rows = read_rows()
    print("| target | CPU time, s | inputs |\n|---|---|---|")
    for target in targets:
        inputs = sum(int(row["inputs"]) for row in rows if row["target"] == target)
        print(f"| {target} | {cpu_seconds(rows, target):.0f} | {inputs:,} |")
    done = sum(cpu_seconds(rows, target) >= 3600 * args.hours for target in targets)
    print(f"\n{done} of {len(targets)} targets have {args.hours:g} h of CPU time.")


if __name__ == "__main__":
    main()
