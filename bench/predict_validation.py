#!/usr/bin/env python3
"""Compares tools/predict with published throughputs, or with measured runs.

  python3 bench/predict_validation.py papers [--plot FILE]
  python3 bench/predict_validation.py runs 100mbit=runs/dense 100mbit=runs/birder [--efficiency 0.9]

papers: the Birder paper's tables (bench/published_throughput.json). The rows of 8 GPUs give the computation of each
workload and the speed of each method's kernels. The dense rows of 16 GPUs give one efficiency for each network. All
other rows are predicted.

runs: run directories of training programs under tools/netlab, each with the rate of its links. The run gives the
measured computation and speed of kernels. The time of a step is predicted.
"""
import argparse
import importlib.machinery
import importlib.util
import json
import math
import pathlib
import statistics
import sys
import types

root = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(root / "tools"))
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("predict", str(root / "tools" / "predict"))
predict = importlib.util.module_from_spec(importlib.util.spec_from_loader("predict", loader))
loader.exec_module(predict)

NVLINK = predict.Link(5e-6, 0.75 * 300e9)
# Bytes per second of a node, and seconds of a message: assumed, not fitted.
FABRICS = {"ethernet_10": (1.25e9, 50e-6), "infiniband_200": (25e9, 10e-6)}


def root_of(f, low, high):
    """Where an increasing function crosses 0."""
    for _ in range(50):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if f(middle) > 0 else (middle, high)
    return low


class Workload:
    """A model and batch on GPUs in nodes of 8, whose computation and kernels are calibrated on one node."""

    def __init__(self, row, workers, overlap):
        self.row, self.workers, self.overlap = row, workers, overlap
        self.layers = predict.predict_models.model(row["model"])
        self.options = types.SimpleNamespace(warm_up=row["warm_up"], warm_up_wire="f32")
        one_node = next(iter(row["samples_per_s"].values()))
        seconds = {method: workers * row["batch"] / rates[str(workers)] for method, rates in one_node.items()}
        alone = predict.Link(0, math.inf)
        # The update of dense is part of its computation.
        self.kernels, self.computation = {"dense": math.inf}, 1
        self.computation = root_of(lambda s: self.seconds("dense", 1, alone, s) - seconds["dense"], 1e-3, 10)
        for method in sorted(seconds.keys() - {"dense"}):
            slowness = root_of(lambda s: self.seconds(method, 1, alone, kernels=1 / s) - seconds[method], 1e-15, 1e-8)
            self.kernels[method] = 1 / slowness

    def seconds(self, method, nodes, link, computation=None, kernels=None):
        computation = computation or self.computation
        kernels = kernels or self.kernels[method]
        cluster = predict.Cluster(nodes, self.workers, NVLINK, link, nccl=True, kernels=kernels, overlap=self.overlap)
        buckets = predict.buckets_of(self.layers, computation, nodes * self.workers)
        return predict.predict(method, predict.Case(buckets, computation, cluster, self.options)).seconds

    def rows(self, fabric, efficiency, latency_factor, keep):
        """(workload, method, workers, published, predicted) of a network, beyond one node, for rows to keep."""
        bandwidth, latency = FABRICS[fabric]
        link = predict.Link(latency * latency_factor, bandwidth * efficiency)
        for method, rates in self.row["samples_per_s"].get(fabric, {}).items():
            for workers, published in rates.items():
                nodes = int(workers) // self.workers
                if nodes > 1 and keep(method, int(workers)):
                    samples = nodes * self.workers * self.row["batch"]
                    yield self.row["name"], method, int(workers), published, samples / self.seconds(method, nodes, link)


def errors(rows, keep=lambda method, workers: True):
    return [abs(predicted / published - 1) for name, method, workers, published, predicted in rows if keep(method, workers)]


def calibration(method, workers):
    return method == "dense" and workers == 16


def fitted(workloads, fabric, latency_factor):
    """(efficiency in percent with the smallest mean error of the calibration rows, all rows)."""

    def rows(percent, keep=lambda method, workers: True):
        return [row for w in workloads for row in w.rows(fabric, percent / 100, latency_factor, keep)]

    percent = min(range(4, 101), key=lambda p: statistics.mean(errors(rows(p, calibration))))
    return percent, rows(percent)


def papers(options):
    data = json.loads((root / "bench" / "published_throughput.json").read_text())
    judged = lambda method, workers: method != "one_bit_adam" and not calibration(method, workers)
    all_rows = {}
    for overlap in (False, True):
        workloads = [Workload(row, data["gpus_per_node"], overlap) for row in data["workloads"]]
        for factor in (1, 0.5, 2) if not overlap else (1,):
            fits = {fabric: fitted(workloads, fabric, factor) for fabric in FABRICS}
            mean = statistics.mean(errors(sum((rows for _, rows in fits.values()), []), judged))
            what = "with overlap" if overlap else "without overlap"
            used = ", ".join(f"{fabric} {percent} %" for fabric, (percent, _) in fits.items())
            print(f"{what}, latency x {factor}: mean error of Birder and dense {100 * mean:.1f} %; efficiency: {used}")
            if not overlap and factor == 1:
                all_rows = {fabric: rows for fabric, (_, rows) in fits.items()}
                calibrated = workloads
    for w in calibrated:
        kernels = ", ".join(f"{method} {rate / 1e9:.0f} GB/s" for method, rate in w.kernels.items() if rate < math.inf)
        print(f"{w.row['name']}: computation {1e3 * w.computation:.1f} ms; kernels: {kernels}")
    print("\nwithout overlap, latency x 1:")
    print(f"{'workload':20} {'network':15} {'method':13} {'GPUs':>4} {'published':>9} {'predicted':>9} {'error':>6}")
    for fabric, rows in all_rows.items():
        for name, method, workers, published, predicted in rows:
            note = "  calibration" if calibration(method, workers) else ""
            print(f"{name:20} {fabric:15} {method:13} {workers:4} {published:9} {predicted:9.0f} {100 * (predicted / published - 1):+5.0f}%{note}")
    print()
    for method in ("dense", "birder", "one_bit_adam"):
        for fabric, rows in all_rows.items():
            mean = statistics.mean(errors(rows, lambda m, workers: m == method and not calibration(m, workers)))
            print(f"mean error, {method}, {fabric}: {100 * mean:.1f} %")
    if options.plot:
        draw(options.plot, all_rows)
    return 0


def draw(path, all_rows):
    figure, panels = predict.panels(2, figsize=(9, 4.2), sharex=True, sharey=True)
    for axes, (fabric, rows) in zip(panels, all_rows.items()):
        for method, marker in (("dense", "s"), ("birder", "o"), ("one_bit_adam", "x")):
            points = [(published, predicted) for _, m, _, published, predicted in rows if m == method]
            axes.plot(*zip(*points), marker, label=method)
        ends = [50, 40000]
        axes.plot(ends, ends, color="gray", linewidth=0.8)
        axes.fill_between(ends, [0.85 * x for x in ends], [1.15 * x for x in ends], color="gray", alpha=0.2)
        axes.set(xscale="log", yscale="log", xlabel="published samples/s", title=fabric)
    panels[0].set(ylabel="predicted samples/s")
    panels[0].legend(fontsize=8)
    predict.save(figure, path)


def runs(options):
    print(f"{'run':30} {'method':14} {'measured':>9} {'predicted':>9} {'error':>6}   seconds of a step, of its computation")
    total = []
    for word in options.runs:
        rate, _, folder = word.partition("=")
        run = pathlib.Path(folder)
        summary, config = (json.loads((run / name).read_text()) for name in ("summary.json", "config.json"))
        words = ["--run", folder, "--bandwidth", rate, "--efficiency", str(options.efficiency), "--latency", str(options.latency)]
        words += ["--warm-up", "0"]  # the median step is after the dense steps
        words += ["--nodes", str(summary["nodes"]), "--workers-per-node", str(summary["workers_per_node"])]
        own, method = predict.arguments(words), predict.method_of(config)
        layers = predict.predict_models.model(own.model, own.size, own.classes)
        predicted = predict.predict(method, predict.case_of(own, layers, own.step_ms / 1e3, summary["nodes"])).seconds
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        # The first line describes the first step, which is slower.
        measured = statistics.median([line["step_s"] for line in lines if "step_s" in line][1:])
        total.append(abs(predicted / measured - 1))
        print(f"{run.name[-30:]:30} {method:14} {measured:9.3f} {predicted:9.3f} {100 * (predicted / measured - 1):+5.0f}% {own.step_ms / 1e3:9.3f}")
    print(f"mean error {100 * statistics.mean(total):.1f} %")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(required=True)
    published = kinds.add_parser("papers")
    published.add_argument("--plot", metavar="FILE", help="draw predicted against published throughputs")
    published.set_defaults(run=papers)
    measured = kinds.add_parser("runs")
    measured.add_argument("runs", nargs="+", metavar="RATE=DIR")
    measured.add_argument("--efficiency", type=float, default=0.9, help="fraction of the rate that large messages reach (0.9)")
    measured.add_argument("--latency", type=float, default=50, help="microseconds per message (50)")
    measured.set_defaults(run=runs)
    options = parser.parse_args()
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
