#!/usr/bin/env python3
"""Compares runs that continue with another number of nodes with runs that keep their number of nodes.

  bench/change_workers.py [--program train_bert] [--steps 390] [--nodes 4] [--seeds 1,2,3,4,5] -- flags of the program

Trains twice for every seed: with W nodes in all steps, and with W, then 2W, then W/2 nodes, each for a third of the
steps. All steps have the same number of samples. Prints both losses of the last evaluation, and the mean difference
with the standard deviation over the seeds.
"""
import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent


def main():
    own, flags = sys.argv[1:], []
    if "--" in own:
        own, flags = own[: own.index("--")], own[own.index("--") + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="train_bert", help="training program (%(default)s)")
    parser.add_argument("--steps", type=int, default=390, help="steps of each run (%(default)s)")
    parser.add_argument("--nodes", type=int, default=4, help="number of nodes W (%(default)s)")
    parser.add_argument("--seeds", default="1,2,3,4,5", help="seeds, separated by commas (%(default)s)")
    arguments = parser.parse_args(own)
    subprocess.run([root / "scripts/build", "release", arguments.program], check=True, stdout=subprocess.DEVNULL)
    program, third, w = root / "build/release" / arguments.program, arguments.steps // 3, arguments.nodes

    def train(*words):
        result = subprocess.run([str(word) for word in (program, *words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if result.returncode:
            sys.exit(f"{' '.join(map(str, words))}\nended with exit code {result.returncode}: {result.stderr}")

    def loss(run):
        lines = [json.loads(line) for line in open(run / "metrics.jsonl")]
        return [line[name] for line in lines for name in ("mlm_loss", "test_loss") if name in line][-1]

    kept, changed = [], []
    for seed in arguments.seeds.split(","):
        with tempfile.TemporaryDirectory() as folder:
            run = pathlib.Path(folder) / "run"
            train(*flags, "--nodes", w, "--seed", seed, "--epochs", 1000, "--max-steps", 3 * third, "--checkpoint-every", third, "--set", "checkpoint.keep=10", "--run-dir", run)
            kept.append(loss(run))
            # A part needs the learning rates of the whole run. Therefore, every part trains to the end, and later
            # checkpoints are removed.
            for step, nodes in ((third, 2 * w), (2 * third, w // 2)):
                for checkpoint in (run / "checkpoints").glob("step-*"):
                    if int(checkpoint.name[5:]) > step:
                        shutil.rmtree(checkpoint)
                train("--resume", run, "--nodes", nodes)
            changed.append(loss(run))
        print(f"seed {seed}: {w} nodes {kept[-1]:.4f}; {w}, {2 * w}, {w // 2} nodes {changed[-1]:.4f}", flush=True)
    differences = [b - a for a, b in zip(kept, changed)]
    print(f"mean {statistics.mean(kept):.4f} ± {statistics.stdev(kept):.4f} and {statistics.mean(changed):.4f} ± {statistics.stdev(changed):.4f}; difference {statistics.mean(differences):+.4f} ± {statistics.stdev(differences):.4f}")


if __name__ == "__main__":
    main()
