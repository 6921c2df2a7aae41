#!/usr/bin/env python3
"""Trains every configuration at several learning rates: its own rate times each factor. Prints the last evaluation of each run.

  python3 bench/tune_rates.py --data FOLDER [--program train_bert] [--factors 0.3,1,3] [--out runs/rates] [--jobs 2] [--write]
      CONFIG.json … [-- flags of the program, such as --max-steps 400]

--write stores the best rate in the configuration. The output marks a best rate at the edge of the tried rates, because a
better rate may exist outside the tried range. In this case, run again with other factors.
"""
import argparse
import concurrent.futures
import pathlib
import re
import sys

from convergence import metric_of, root, run

RATE = re.compile(r'("lr":\s*)([0-9.eE+-]+)')


def main():
    own, flags = sys.argv[1:], []
    if "--" in own:
        own, flags = own[: own.index("--")], own[own.index("--") + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="+", metavar="CONFIG.json", type=pathlib.Path)
    parser.add_argument("--data", type=lambda path: pathlib.Path(path).resolve(), help="data of all runs whose configurations do not set it")
    parser.add_argument("--program", default="train_resnet", help="training program [%(default)s]")
    parser.add_argument("--factors", default="0.3,1,3", help="factors of the configured rate [%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="seed of all runs [%(default)s]")
    parser.add_argument("--out", type=pathlib.Path, default=root / "runs" / "rates", help="folder of the runs [runs/rates]")
    parser.add_argument("--jobs", type=int, default=1, help="concurrent runs [1]")
    parser.add_argument("--write", action="store_true", help="write the best rates to the configurations")
    arguments = parser.parse_args(own)
    factors = sorted(float(factor) for factor in arguments.factors.split(","))
    out = arguments.out.resolve()

    def evaluate(config, rate):
        """The last evaluation of a run, as a number of which larger is better; None if the run failed (for example diverged)."""
        metrics = run(arguments.program, config.resolve(), arguments.seed, arguments.data, out, [*flags, "--lr", f"{rate:g}"])
        if metrics is None:
            return None
        key, label, factor = metric_of(metrics)
        return factor * [m[key] for m in metrics if key in m][-1] * (-1 if "loss" in key else 1)

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        tried = {config: {float(f"{factor * float(RATE.search(config.read_text())[2]):.2g}"): None for factor in factors} for config in arguments.configs}
        for config, rates in tried.items():
            tried[config] = {rate: pool.submit(evaluate, config, rate) for rate in rates}
    for config, rates in tried.items():
        values = {rate: done.result() for rate, done in rates.items() if done.result() is not None}
        if not values:
            print(f"{config.stem}: every run failed")
            continue
        best = max(values, key=values.get)
        edge = len(rates) > 1 and best in (min(rates), max(rates))
        print(f"{config.stem}: " + "  ".join(f"{rate:g}: {abs(values[rate]):.3f}" if rate in values else f"{rate:g}: failed" for rate in rates)
              + f"  best {best:g}" + (", the edge" if edge else ""))
        if arguments.write:
            config.write_text(RATE.sub(lambda match: f"{match[1]}{best:g}", config.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
