"""Reads a run directory: config.json, metrics.jsonl and summary.json."""

import array
import bisect
import json
import math
import pathlib

from report_page.text import printable

SHOWN_POINTS = 1000  # points of a curve; longer curves keep the minimum and the maximum of each interval
CURVES = ("loss", "accuracy", "lr", "step_s", "grad_norm")  # keys of training lines
BOOKKEEPING = {"step", "epoch", "interrupted"}  # keys of evaluation lines that are not results
TIMES = (
    "step_s",
    "forward_s",
    "backward_s",
    "computation_s",
    "data_wait_s",
    "waiting_s",
    "exposed_compression_s",
    "exposed_communication_s",
    "exposed_update_s",
    "idle_s",
    "other_s",
)


class RunError(Exception):
    """A run directory that cannot be read; the text names the directory and the reason."""


def number(value):
    """A JSON value as a float; NaN if it is not a finite number."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            value = float(value)
            return value if math.isfinite(value) else math.nan
        except OverflowError:
            pass
    return math.nan


def not_negative(value):
    """As number(), and NaN if the value is negative or so large that sums over steps overflow."""
    value = number(value)
    return value if 0 <= value < 1e30 else math.nan


def flat(value, prefix="", levels=8):
    """A configuration as key -> value, with dots between the levels."""
    if not isinstance(value, dict) or not value or not levels:
        return {prefix: value}
    return {
        k: v
        for name, inner in value.items()
        for k, v in flat(inner, f"{prefix}.{name}" if prefix else name, levels - 1).items()
    }


def thinned(values):
    """(indices, means): indices of the points to draw, and the mean of the interval of each point. means is None if
    all points are drawn."""
    count = len(values)
    if count <= SHOWN_POINTS:
        return range(count), None
    kept, means = [0], [values[0]]
    intervals = SHOWN_POINTS // 2
    for k in range(intervals):
        begin, end = count * k // intervals, count * (k + 1) // intervals
        part = values[begin:end]
        if math.isnan(sum(part)):
            finite = [v for v in part if not math.isnan(v)]
            if not finite:
                if begin > kept[-1]:
                    kept.append(begin)
                    means.append(math.nan)
                continue
        else:
            finite = part
        for i in sorted({begin + part.index(min(finite)), begin + part.index(max(finite))}):
            if i > kept[-1]:
                kept.append(i)
                means.append(sum(finite) / len(finite))
        if k == 0:
            means[0] = sum(finite) / len(finite)
    if kept[-1] != count - 1:
        kept.append(count - 1)
        means.append(means[-1])
    return kept, means


class Curve:
    """Values of one key, each with the index of its line."""

    def __init__(self):
        self.line, self.value = array.array("q"), array.array("d")

    def add(self, line, value):
        self.line.append(line)
        self.value.append(value)

    def cut(self, line):
        keep = bisect.bisect_left(self.line, line)
        del self.line[keep:], self.value[keep:]

    def last(self):
        return self.value[-1] if self.value else math.nan


class Metrics:
    """The lines of metrics.jsonl as columns. Positions of a line: its step, and cumulative seconds, bytes between nodes
    and all bytes."""

    def __init__(self, log_every):
        self.log_every = log_every
        self.step = array.array("q")
        self.seconds, self.inter, self.all = array.array("d"), array.array("d"), array.array("d")
        self.trained = array.array("q")  # number of steps that the sums include, up to the line
        self.training, self.evaluations = {}, {}  # key -> Curve
        self.sums, self.known = dict.fromkeys(TIMES, 0.0), dict.fromkeys(TIMES, 0)  # seconds and steps of each part
        self.last_training = self.begins = self.epoch = 0
        self.interrupted = self.repeated = None
        self.samples = self.sample_seconds = 0.0
        self.missing_times = self.missing_bytes = self.known_bytes = False

    def add(self, line):
        """Adds a line; returns False if it is not a line of a run."""
        step = line.get("step")
        if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < 2**53:
            return False
        training = "loss" in line and "lr" in line
        if self.step and (step <= self.last_training if training else step < self.step[-1]):
            self.rewind(step, training)
        epoch = number(line.get("epoch"))
        self.epoch = int(epoch) if epoch >= 0 else self.epoch
        self.interrupted = step if line.get("interrupted") is True else None
        if training:
            self.add_training(step, line)
        elif not line.get("interrupted"):
            self.place(step, 0, 0.0, 0.0, 0.0)
            for key, value in line.items():
                if key not in BOOKKEEPING and (value is None or isinstance(value, (int, float))):
                    self.evaluations.setdefault(key, Curve()).add(len(self.step) - 1, number(value))
        return True

    def add_training(self, step, line):
        steps = step - self.last_training
        if not self.last_training and self.log_every < step:  # resumed in another folder
            steps, self.begins = self.log_every, step
        self.last_training = step
        for key in TIMES:
            value = line.get(key)
            if value is not None and (value := not_negative(value)) >= 0:
                self.sums[key] += steps * value
                self.known[key] += steps
        seconds, intra, inter = (not_negative(line.get(key)) for key in ("step_s", "bytes_intra", "bytes_inter"))
        samples = not_negative(line.get("samples_per_s")) * steps * seconds
        if not math.isnan(samples):
            self.samples += samples
            self.sample_seconds += steps * seconds
        self.missing_times |= math.isnan(seconds)
        self.missing_bytes |= math.isnan(intra + inter)
        self.known_bytes |= not math.isnan(intra + inter)
        self.place(step, steps, seconds, inter, intra + inter)
        for key in CURVES:
            if key in line:
                self.training.setdefault(key, Curve()).add(len(self.step) - 1, number(line[key]))

    def place(self, step, steps, *rates):
        columns = (self.seconds, self.inter, self.all)
        sums = [column[-1] if column else 0.0 for column in columns]
        self.trained.append((self.trained[-1] if self.trained else 0) + steps)
        self.step.append(step)
        for column, total, rate in zip(columns, sums, rates):
            column.append(total + (0.0 if math.isnan(rate) else steps * rate))

    def samples_per_s(self):
        return self.samples / self.sample_seconds if self.sample_seconds > 0 else math.nan

    def rewind(self, step, training):
        """Drops the lines of repeated steps, which a resumed run has written again."""
        self.repeated = step
        cut = bisect.bisect_left(self.step, step) if training else bisect.bisect_right(self.step, step)
        for column in (self.step, self.seconds, self.inter, self.all, self.trained):
            del column[cut:]
        for curve in [*self.training.values(), *self.evaluations.values()]:
            curve.cut(cut)
        lines = [curve.line[-1] for curve in self.training.values() if curve.line]
        self.last_training = self.step[max(lines)] if lines else 0

    def points(self, curve):
        """The curve for the page: positions and values, None for a value that is not finite."""
        indices, means = thinned(curve.value)
        short = lambda v: float(f"{v:.6g}") if math.isfinite(v) else None
        lines = [curve.line[i] for i in indices]
        columns = {"step": self.step, "seconds": self.seconds, "inter": self.inter, "all": self.all}
        shown = {
            name: [short(column[i]) if name != "step" else column[i] for i in lines] for name, column in columns.items()
        }
        shown["value"] = [short(curve.value[i]) for i in indices]
        if means:
            shown["mean"] = [short(m) for m in means]
        return shown


def parse(text):
    """A JSON object, or None."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class Run:
    """A run directory. Raises RunError if it has no metrics; other defects become notes."""

    def __init__(self, folder):
        self.folder, self.notes = pathlib.Path(folder), []
        self.name = printable(self.folder.resolve().name)
        self.config = self.object("config.json")
        self.settings = flat(self.config) if self.config else {}
        self.summary = self.object("summary.json")
        self.metrics = self.read_metrics()
        self.describe()

    def object(self, name):
        path = self.folder / name
        try:
            value = parse(path.read_bytes()) if path.is_file() else {}
        except OSError as error:
            self.notes.append(f"{name} cannot be read ({error.strerror}).")
            return {}
        if value is None:
            self.notes.append(f"{name} is not a JSON object; it is ignored.")
        elif not value:
            self.notes.append(f"{name} is missing" + ("; the run has not ended." if name == "summary.json" else "."))
        return value or {}

    def read_metrics(self):
        path = self.folder / "metrics.jsonl"
        if not path.is_file():
            raise RunError(f"{printable(str(self.folder))}: has no metrics.jsonl; expected the folder of a run")
        every = self.settings.get("log_every")
        metrics = Metrics(every if isinstance(every, int) and every > 0 else 2**53)
        damaged, truncated = [], False
        try:
            with open(path, "rb") as file:
                for at, text in enumerate(file, 1):
                    if text.isspace():
                        continue
                    line = parse(text)
                    if line is None and not text.endswith(b"\n"):
                        truncated = True
                    elif line is None or not metrics.add(line):
                        damaged.append(at)
        except OSError as error:
            raise RunError(f"{printable(str(path))}: cannot be read ({error.strerror})") from error
        if truncated:
            self.notes.append("The last line of metrics.jsonl is truncated; it is ignored.")
        if damaged:
            self.notes.append(
                f"Lines of metrics.jsonl that are not metrics: {len(damaged)}, first line {damaged[0]}; ignored."
            )
        if not metrics.step:
            raise RunError(f"{printable(str(path))}: has no metrics" + (" that can be read" if damaged else " yet"))
        return metrics

    def describe(self):
        metrics, notes = self.metrics, self.notes
        if metrics.interrupted is not None:
            notes.append(f"Interrupted at step {metrics.interrupted}.")
        if metrics.begins:
            notes.append(f"metrics.jsonl begins at step {metrics.begins}; time and bytes count from there.")
        if metrics.repeated is not None:
            notes.append(f"Steps from {metrics.repeated} were repeated; the later lines are shown.")
        for key, curve in {**metrics.training, **metrics.evaluations}.items():
            bad = [i for i, v in enumerate(curve.value) if math.isnan(v)]
            if bad:
                count = f"{len(bad)} of {len(curve.value)}, first at step {metrics.step[curve.line[bad[0]]]}"
                notes.append(f"Values of {printable(key)} that are not finite: {count}.")
        if metrics.training and metrics.missing_times:
            notes.append("Training lines without step_s: the time axis is incomplete.")
        if metrics.training and metrics.missing_bytes:
            notes.append("Training lines without bytes: the byte axes are incomplete.")
        steps = self.summary.get("steps")
        if isinstance(steps, int) and 0 < steps < metrics.step[-1]:
            notes.append(
                f"summary.json covers the last {steps} of {metrics.step[-1]} steps, since the run was resumed."
            )
        long = max((len(c.value) for c in metrics.training.values()), default=0)
        if long > SHOWN_POINTS:
            notes.append(
                f"Curves show {SHOWN_POINTS} of {long} points: the smallest and the largest value of each of"
                f" {SHOWN_POINTS // 2} intervals."
            )

    def model(self):
        """The name of the network; for "auto", the name of the initial weights, or the default of the program."""
        name, weights = self.setting("model.name"), self.setting("init_weights")
        if name != "auto":
            return name
        if weights:
            return f"{pathlib.PurePath(weights).name} (initial weights)"
        return "gpt2_nano" if "model.n_layer" in self.settings else "bert_mini"

    def setting(self, key):
        value = self.settings.get(key)
        return "" if value is None else printable(value if isinstance(value, str) else json.dumps(value))

    def total(self, sums, per_step):
        """The sum over all steps, or the mean per step."""
        steps = self.metrics.trained[-1]
        return sums[-1] / (steps if per_step else 1) if steps else math.nan

    def step_parts(self):
        """([(part, seconds per step)], seconds of the step). The parts add up to the step; [] if they are unknown."""
        metrics = self.metrics
        steps = metrics.known["step_s"]
        complete = lambda *keys: steps > 0 and all(metrics.known[key] == steps for key in keys)
        mean = lambda key: metrics.sums[key] / steps
        if complete("forward_s", "backward_s", "exposed_communication_s"):
            keys = (
                "forward_s",
                "backward_s",
                "data_wait_s",
                "exposed_compression_s",
                "exposed_communication_s",
                "exposed_update_s",
                "idle_s",
            )
            parts = [(key[:-2], mean(key)) for key in keys]
        elif complete("computation_s", "waiting_s", "idle_s"):
            parts = [
                ("computation", mean("computation_s")),
                ("data_wait", mean("data_wait_s")),
                ("exchange", max(mean("waiting_s") - mean("idle_s"), 0)),
                ("idle", mean("idle_s")),
            ]
        else:
            return [], math.nan
        step = mean("step_s")
        rest = step - sum(seconds for _, seconds in parts)
        if rest < -0.01 * step:
            self.notes.append(f"The parts of a step exceed the step by {-100 * rest / step:.0f} %.")
        return parts + [("other", max(rest, 0.0))], step

    def phases(self):
        """[(phase, calls, bytes within nodes, bytes between nodes, seconds)] per step; [] if they are unknown."""
        steps, rows = number(self.summary.get("steps")), self.summary.get("phases")
        if not steps > 0 or not isinstance(rows, list):
            return []
        keys = ("calls", "bytes_intra", "bytes_inter", "seconds")
        return [
            (printable(str(row.get("phase"))), *(max(0.0, not_negative(row.get(key))) / steps for key in keys))
            for row in rows
            if isinstance(row, dict)
        ]

    def state_bytes(self):
        """Bytes of optimizer and exchange state of a worker, mean over the workers; NaN if unknown."""
        state = self.summary.get("state")
        lists = (
            [part.get("bytes_of_ranks") for part in state if isinstance(part, dict)]
            if isinstance(state, list)
            else None
        )
        if lists is None or not all(isinstance(ranks, list) and ranks for ranks in lists):
            return math.nan
        return sum(sum(map(not_negative, ranks)) / len(ranks) for ranks in lists)
