#!/usr/bin/env python3
"""Trains 10,000 steps, and checks that the workers stay bit-identical and that the memory does not grow.

  bench/soak.py [--steps 10000] [--every 500] [-- flags of train_resnet]

Workers compare the hashes of their parameters and of their shared optimizer state every 100 steps, and save a
checkpoint every 500 steps. Prints the median resident memory, read from /proc every 2 seconds, over each tenth of the
run. Exits with 1 if the run fails, or if the last tenth needs over 2 % more memory than the fourth tenth, which follows
the first evaluation (step 1,875).
"""
import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

root = pathlib.Path(__file__).resolve().parent.parent


def resident_mib(pid):
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main():
    own, flags = sys.argv[1:], ["--optimizer", "birder", "--nodes", "4", "--batch", "8", "--threads", "1"]
    if "--" in own:
        own, flags = own[: own.index("--")], own[own.index("--") + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10000, help="number of steps, at least 7000, so that an evaluation comes early enough (%(default)s)")
    parser.add_argument("--every", type=int, default=500, help="steps between checkpoints (%(default)s)")
    arguments = parser.parse_args(own)
    subprocess.run([root / "scripts/build", "release", "train_resnet"], check=True, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory() as folder:
        command = [root / "build/release/train_resnet", *flags, "--epochs", "1000000", "--max-steps", arguments.steps, "--check-replicas", 100, "--checkpoint-every", arguments.every, "--run-dir", folder + "/run"]
        samples, start = [], time.time()
        with open(folder + "/out", "w") as out, open(folder + "/errors", "w") as errors:
            process = subprocess.Popen([str(word) for word in command], stdout=out, stderr=errors)
            while process.poll() is None:
                try:
                    samples.append(resident_mib(process.pid))
                except (OSError, IndexError):
                    break  # the process has just ended
                time.sleep(2)
            process.wait()
        seconds, text = time.time() - start, pathlib.Path(folder, "out").read_text()
        if process.returncode:
            sys.exit(f"exit code {process.returncode}: {pathlib.Path(folder, 'errors').read_text()}")
    checks = re.search(r"replica checks: .*", text)
    saved = len(re.findall(r"^checkpoint of step", text, re.M))
    tenths = [statistics.median(samples[i * len(samples) // 10 : (i + 1) * len(samples) // 10] or [0]) for i in range(10)]
    print(f"{arguments.steps} steps in {seconds:.0f} s, {saved} checkpoints")
    print(checks.group(0) if checks else "no replica checks")
    print("resident memory by tenth, MiB: " + " ".join(f"{mib:.0f}" for mib in tenths))
    if not checks or tenths[-1] > 1.02 * tenths[3]:
        sys.exit("memory grew" if checks else "the replicas were not checked")


if __name__ == "__main__":
    main()
