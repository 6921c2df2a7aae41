#!/usr/bin/env python3
"""Compares tools/predict with published throughputs, or with measured runs.

  python3 bench/predict_validation.py papers [--plot FILE]
  python3 bench/predict_validation.py runs 100mbit=runs/dense 100mbit=runs/birder [--efficiency 0.9]

papers: the tables of the Birder and LoCo papers (bench/published_throughput.json).

Birder: the rows of 8 GPUs give the computation of each workload and the speed of each method's kernels. The dense rows
of 16 GPUs give one efficiency for each network. All other rows are predicted.

LoCo: the rows of Adam with 1 and 4 micro-batches give the computation and the rate of a node's link. All other rows
with 1 micro-batch are predicted.

The papers of 0/1 Adam and Birder also state speed-ups without the computation. They are predicted with assumed
computation.

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
from predict_methods import to_owners

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
        self.options = types.SimpleNamespace(warm_up=row["warm_up"], warm_up_wire="f32", optimizer="sgdm")
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
                calibrated, efficiency = workloads, fits["ethernet_10"][0] / 100
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
    print_loco(data["loco"])
    print_speed_ups(efficiency)
    if options.plot:
        draw(options.plot, all_rows)
    return 0


class Replicas:
    """A language model of the LoCo paper, calibrated with rows of Adam.

    A node holds the parameters of a pipeline stage, divided over its 8 GPUs. Each GPU exchanges its part with one GPU
    of every other replica, so the node's link carries the bytes of the stage. The exchange starts after the computation.
    Only ratios of times are known: the paper does not state the size of a micro-batch, which is one text here."""

    # Gradients to the owner of a part, and bfloat16 parameters back (ZeRO-2).
    EXCHANGES = {"adam": to_owners(2, 2, 4), "loco": to_owners(0.5, 2, 6)}
    GPUS, TEXT = 8, 4096  # GPUs of a node, tokens of a micro-batch

    def __init__(self, model, rows, gpus):
        """gpus: number of GPUs in the rows for the calibration."""
        self.stages = model["stages"]
        layers = predict.predict_models.llama(self.TEXT, 32000, *model["shape"])
        self.values = predict.predict_models.parameters(layers) / self.stages
        one, four = (count * self.tokens(gpus) / rows[name][gpus] for name, count in (("adam", 1), ("adam_4", 4)))
        # The first micro-batch passes all stages, every further one adds the time of one stage.
        self.computation = self.stages * (four - one) / 3
        self.link = predict.Link(0, 1 / root_of(lambda s: self.seconds("adam", gpus, predict.Link(0, 1 / s)) - one, 1e-15, 1e-6))

    def tokens(self, gpus):
        return int(gpus) // self.GPUS // self.stages * self.TEXT

    def seconds(self, method, gpus, link):
        replicas = self.tokens(gpus) // self.TEXT
        cluster = predict.Cluster(replicas, 1, NVLINK, link, nccl=True, kernels=math.inf)
        bucket = predict.Bucket(self.values, self.values, [], self.computation)
        return predict.simulate([bucket], self.computation, cluster, self.EXCHANGES[method], 0).seconds

    def predict(self, method, gpus):
        return self.tokens(gpus) / self.seconds(method, gpus, self.link)


def print_loco(data):
    """Predicts each row calibrated with the smallest number of GPUs, and rows of LoCo also with their own number."""
    print(f"\n{'model':10} {'network':15} {'method':6} {'GPUs':>4} {'published':>9} {'predicted':>9} {'error':>6}  calibrated with the row's GPUs")
    deviations = {}
    for network, models in data["tokens_per_s"].items():
        for name, rows in models.items():
            least = min(rows["adam"], key=int)
            calibrated = {gpus: Replicas(data["models"][name], rows, gpus) for gpus in rows["adam"]}
            for method, gpus in ((method, gpus) for method in Replicas.EXCHANGES for gpus in rows[method]):
                published, text = rows[method][gpus], []
                for what, fewest in ((network, least), (f"{network}, the row's GPUs", gpus)):
                    predicted = calibrated[fewest].predict(method, gpus)
                    text.append(f"{predicted:9.0f} {100 * (predicted / published - 1):+5.0f}%")
                    if (method, gpus) != ("adam", fewest):
                        deviations.setdefault((method, what), []).append(abs(predicted / published - 1))
                if method == "adam":
                    text[1] = "calibration" if gpus == least else ""
                print(f"{name:10} {network:15} {method:6} {gpus:>4} {published:9.0f} {text[0]}  {text[1]}".rstrip())
    print()
    for (method, what), values in deviations.items():
        print(f"mean error, {method}, {what}: {100 * statistics.mean(values):.1f} %")
    judged = sum((values for (_, what), values in deviations.items() if what in data["tokens_per_s"]), [])
    print(f"mean error of Adam and LoCo {100 * statistics.mean(judged):.1f} % ({len(judged)} values)")


def speed_up(method, base, model, samples, nodes, workers, link, tflops, warm_up=0):
    layers = predict.predict_models.model(*model)
    computation = 3 * samples * sum(layer.flops for layer in layers) / tflops / 1e12
    cluster = predict.Cluster(nodes, workers, NVLINK, link, nccl=True, kernels=1e12, overlap=False)
    options = types.SimpleNamespace(warm_up=warm_up, warm_up_wire="bf16", optimizer="sgdm")
    case = predict.Case(predict.buckets_of(layers, computation, nodes * workers), computation, cluster, options)
    return predict.predict(base, case).seconds / predict.predict(method, case).seconds


def print_speed_ups(efficiency):
    """efficiency: the efficiency of the Birder paper's Ethernet."""
    bandwidth, latency = FABRICS["ethernet_10"]
    print("\nspeed-up with an assumed computation of 20, 40 and 60 TFLOP/s:")
    slow, fast = predict.Link(latency, 2.7e9 / 8), predict.Link(latency, bandwidth * efficiency)
    for what, *words in (
        ("0/1 Adam over 1-bit Adam, BERT-Base", "zero_one_adam", "one_bit_adam", ("bert_base_pretraining",), 32, 32, 4, slow, 16 / 118),
        ("0/1 Adam over 1-bit Adam, BERT-Large", "zero_one_adam", "one_bit_adam", ("bert_large_pretraining",), 32, 32, 4, slow, 23 / 152),
        ("Birder over dense, BERT-Base", "birder", "dense", ("bert_base_pretraining", 512), 16, 8, 8, fast, 0),
    ):
        values = [speed_up(*words[:-1], tflops, words[-1]) for tflops in (20, 40, 60)]
        print(f"{what:37}" + " ".join(f"{value:5.2f}" for value in values))


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
