#!/usr/bin/env python3
"""Kills a training run at random times, resumes it each time, and compares the result with an uninterrupted run.

  bench/kill_resume.py [--kills 100] [--seed 1] [-- flags of train_resnet]

Every process is started with the same command (--resume auto) and gets SIGKILL after a random time, so kills also hit
start-up, evaluation and the writing of checkpoints. After each kill, a copy of the run directory is resumed to the end
and compared bit for bit (metrics.jsonl without times, weights.safetensors); the run itself goes on until the next kill.
Kills before the first checkpoint are not counted. A run that ends before it is killed is also compared, and another run
begins. Exits with 1 at the first difference.
"""
import argparse
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

root = pathlib.Path(__file__).resolve().parent.parent


def remains(folder):
    lines = [{key: value for key, value in json.loads(line).items() if not key.endswith("_s")} for line in open(folder / "metrics.jsonl")]
    return lines, (folder / "weights.safetensors").read_bytes()


def main():
    own, flags = sys.argv[1:], ["--optimizer", "birder", "--nodes", "2", "--batch", "8", "--max-steps", "300"]
    if "--" in own:
        own, flags = own[: own.index("--")], own[own.index("--") + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="number of kills (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random times (%(default)s)")
    arguments = parser.parse_args(own)
    moments = random.Random(arguments.seed)
    subprocess.run([root / "scripts/build", "release", "train_resnet"], check=True, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)

        def command(run):
            return [str(root / "build/release/train_resnet"), *flags, "--set", "log_every=1", "--checkpoint-every", "1", "--resume", "auto", "--run-dir", str(run)]

        start = time.time()
        subprocess.run(command(folder / "whole"), check=True, stdout=subprocess.DEVNULL)
        longest, whole = time.time() - start, remains(folder / "whole")
        kills = during_save = early = 0

        def ends_alike(run):
            process = subprocess.run(command(run), capture_output=True, text=True)
            if process.returncode:
                sys.exit(f"after {kills} kills: exit code {process.returncode}: {process.stderr}")
            if "continues after step" not in process.stdout:
                sys.exit(f"after {kills} kills: the run began anew")
            if remains(run) != whole:
                sys.exit(f"after {kills} kills: the result differs from the uninterrupted run")
            shutil.rmtree(run)

        while kills < arguments.kills:
            begun = time.time()
            process = subprocess.Popen(command(folder / "run"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            try:
                process.wait(moments.uniform(0.05, 1) * longest)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                if not any((folder / "run").glob("checkpoints/step-*[0-9]/manifest.json")):
                    early += 1
                    continue
                kills += 1
                # An older folder is of an earlier kill.
                during_save += any(path.stat().st_mtime >= begun for path in (folder / "run").glob("checkpoints/*.partial"))
                shutil.copytree(folder / "run", folder / "copy")
                ends_alike(folder / "copy")
                if kills % 10 == 0:
                    print(f"{kills} kills, each resumed with the same bits at the end", flush=True)
                continue
            if process.returncode:
                sys.exit(f"after {kills} kills: exit code {process.returncode}: {process.stderr.read()}")
            if remains(folder / "run") != whole:
                sys.exit(f"after {kills} kills: the result differs from the uninterrupted run")
            shutil.rmtree(folder / "run")
    print(f"{kills} kills, {during_save} of them while a checkpoint was written: {kills} usable checkpoints, {kills} resumes with the same bits at the end")
    print(f"{early} further kills came before the first checkpoint")


if __name__ == "__main__":
    main()
