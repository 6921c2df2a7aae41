"""Builds the HTML page. Every text of a run is escaped; scripts and styles are inline, and nothing is loaded."""

import base64
import datetime
import hashlib
import html
import json
import math
import os
import pathlib
import urllib.parse

from report_page.text import LOW, duration, esc, figure, percent, printable, size

HERE = pathlib.Path(__file__).resolve().parent
LINES, HUES = 24, 6  # styles of curves: six colors, each in four patterns of dashes
PHASES = 12  # number of phases with a separate color; smaller phases are summed
PARTS = {
    "forward": "forward",
    "backward": "backward",
    "computation": "forward + backward",
    "data_wait": "waiting for data",
    "exposed_compression": "exposed compression",
    "exposed_communication": "exposed communication",
    "exposed_update": "exposed update",
    "exchange": "exposed exchange",
    "idle": "waiting for a core",
    "other": "other",
}
LONGEST_VALUE = 300  # characters of a setting in the table of differences
TITLES = {
    "loss": "Training loss",
    "accuracy": "Training accuracy",
    "lr": "Learning rate",
    "step_s": "Seconds per step",
    "grad_norm": "Gradient norm",
    "test_loss": "Test loss",
    "test_top1": "Test accuracy, top-1",
    "test_top5": "Test accuracy, top-5",
    "test_accuracy": "Test accuracy",
    "val_loss": "Validation loss",
    "perplexity": "Validation perplexity",
    "bits_per_byte": "Validation bits per byte",
    "test_perplexity": "Test perplexity",
    "mlm_loss": "Masked words: loss",
    "mlm_accuracy": "Masked words: accuracy",
    "nsp_accuracy": "Next sentence: accuracy",
    "em": "Exact match",
    "f1": "F1",
}


def style(index):
    return f"hue{index % HUES} dash{index % LINES // HUES}"


def swatch(index):
    return f'<svg class="swatch {style(index)}" viewBox="0 0 26 8" aria-hidden="true"><path d="M0 4H26"/></svg>'


def name_cell(index, run):
    return f'<th scope="row" class="run">{swatch(index)} {esc(run.name)}</th>'


def table(head, rows, classes=""):
    """rows: lists of cells. A cell that does not begin with <t is escaped as text."""
    cell = lambda c: c if c.startswith("<t") else f"<td>{esc(c)}</td>"
    lines = "".join("<tr>" + "".join(map(cell, row)) + "</tr>\n" for row in rows)
    return (
        f'<div class="wide"><table class="{classes}"><thead><tr>{"".join(head)}</tr></thead>\n'
        f"<tbody>{lines}</tbody></table></div>"
    )


def run_heads(runs, first):
    return [f'<th scope="col">{esc(first)}</th>'] + [
        f'<th scope="col" class="run">{swatch(i)} {esc(run.name)}</th>' for i, run in enumerate(runs)
    ]


def keys_of(runs, kind):
    """Keys of all runs, in order of their first appearance."""
    return list(dict.fromkeys(key for run in runs for key in getattr(run.metrics, kind)))


def last_and_best(key, run):
    curve = run.metrics.evaluations.get(key)
    if not curve:
        return "–"
    text, finite = figure(key, curve.last()), [v for v in curve.value if not math.isnan(v)]
    best = finite and (min if key.endswith(LOW) else max)(finite)
    return text if not finite or best == curve.last() else f"{text} (best {figure(key, best)})"


def summary_rows(runs):
    """[(label, text of each run)]"""

    def method(run):
        optimizer, exchange = run.setting("optimizer.name"), run.setting("exchange.name")
        return f"{optimizer}, {exchange}" if exchange else optimizer or "–"

    def loss(run):
        curve = run.metrics.training.get("loss")
        return figure("loss", curve.last()) if curve else "–"

    def workers(run):
        nodes, each = run.setting("nodes"), run.setting("workers_per_node")
        return f"{nodes} × {each}" if nodes and each else "–"

    def steps(run):
        ended = " (interrupted)" if run.metrics.interrupted is not None else "" if run.summary else " (not ended)"
        return f"{run.metrics.step[-1]:,}{ended}"

    def seconds(run, per_step=False):
        return run.total(run.metrics.seconds, per_step) if run.metrics.known["step_s"] else math.nan

    def sent(run, column, per_step=False):
        return run.total(column, per_step) if run.metrics.known_bytes else math.nan

    intra = lambda run: sent(run, run.metrics.all, True) - sent(run, run.metrics.inter, True)
    rows = [
        ("Model", lambda run: run.model() or "–"),
        ("Optimizer, exchange", method),
        ("Nodes × workers", workers),
        ("Device, type", lambda run: ", ".join(filter(None, (run.setting("device"), run.setting("dtype")))) or "–"),
        ("Steps", steps),
        ("Epoch", lambda run: str(run.metrics.epoch or "–")),
        ("Last training loss", loss),
    ]
    rows += [
        (TITLES.get(key, key), lambda run, key=key: last_and_best(key, run)) for key in keys_of(runs, "evaluations")
    ]
    rows += [
        ("Time of the steps", lambda run: duration(seconds(run))),
        ("Time per step", lambda run: duration(seconds(run, True))),
        ("Samples per second (language models: tokens)", lambda run: figure("", run.metrics.samples_per_s())),
        ("Sent between nodes, per step", lambda run: size(sent(run, run.metrics.inter, True))),
        ("Sent within nodes, per step", lambda run: size(intra(run))),
        ("Sent between nodes, all steps", lambda run: size(sent(run, run.metrics.inter))),
        (
            "Parameters",
            lambda run: f"{run.summary['parameters']:,}" if isinstance(run.summary.get("parameters"), int) else "–",
        ),
        ("Optimizer and exchange state of a worker", lambda run: size(run.state_bytes())),
    ]
    texts = [(label, [text(run) for run in runs]) for label, text in rows]
    return [[f'<th scope="row">{esc(label)}</th>', *own] for label, own in texts if set(own) != {"–"}]


def summary_section(runs, unread):
    notes = "".join(f"<li><b>{esc(run.name)}</b>: {esc(' '.join(run.notes))}</li>" for run in runs if run.notes)
    notes += "".join(f"<li><b>Not in this page</b>: {esc(text)}</li>" for text in unread)
    return (
        f'<section id="summary"><h2>Summary</h2>{table(run_heads(runs, ""), summary_rows(runs), "figures summary")}'
        + "<p class=small>Times and bytes cover the training steps, without evaluation. Bytes are the sum over "
        "all workers.</p>" + (f'<ul class="notes">{notes}</ul>' if notes else "") + "</section>"
    )


def bars(labels, rows, unit):
    """Stacked bars. labels: [(class, text)] of the parts; rows: [(heading cell, values, text of the sum)]."""
    longest = max((sum(values) for _, values, _ in rows), default=0) or 1
    lines = []
    for heading, values, text in rows:
        x, boxes = 0.0, ""
        for (name, label), value in zip(labels, values):
            if value > 0:
                begin, width = 1000 * x / longest, 1000 * value / longest
                boxes += (
                    f'<rect class="{name}" x="{begin:.3f}" width="{width:.3f}" height="20">'
                    f"<title>{esc(label)}: {esc(unit(value))}</title></rect>"
                )
            x += value
        bar = (
            '<svg class="bar" viewBox="0 0 1000 20" preserveAspectRatio="none" role="img" '
            f'aria-label="{esc(text)}">{boxes}</svg>'
        )
        lines.append(f"<tr>{heading}<td class=barcell>{bar}</td><td>{esc(text)}</td></tr>")
    key = "".join(f'<span><i class="{name}"></i>{esc(label)}</span>' for name, label in labels)
    return f'<p class="key">{key}</p><table class="bars"><tbody>{"".join(lines)}</tbody></table>'


def time_section(runs):
    split = [(i, run, *run.step_parts()) for i, run in enumerate(runs)]
    split = [row for row in split if row[2]]
    if not split:
        return ""
    names = [name for name in PARTS if any(dict(parts).get(name, 0) > 0 for _, _, parts, _ in split)]
    labels = [(f"part-{name}", PARTS[name]) for name in names]
    rows = [
        (name_cell(i, run), [dict(parts).get(name, 0) for name in names], duration(step))
        for i, run, parts, step in split
    ]
    heads = [f'<th scope="col">{esc(text)}</th>' for text in ("ms per step", *(PARTS[n] for n in names), "step")]
    cells = [
        [
            name_cell(i, run),
            *(f"{1e3 * dict(parts)[name]:.2f}" if name in dict(parts) else "–" for name in names),
            f"{1e3 * step:.2f}",
        ]
        for i, run, parts, step in split
    ]
    return (
        '<section id="time"><h2>Time of a step</h2>'
        '<p>Mean over all steps and workers. The parts add up to the step; "exposed" '
        "is the part of the exchange that the computation does not hide.</p>"
        + bars(labels, rows, duration)
        + f'<details open><summary>Figures</summary>{table(heads, cells, "figures")}</details></section>'
    )


def bytes_section(runs):
    phases = [(i, run, run.phases()) for i, run in enumerate(runs)]
    phases = [row for row in phases if row[2]]
    if not phases:
        return ""
    share = {}  # phase -> its largest fraction of the bytes of a run on a link level
    for _, _, rows in phases:
        for column in (2, 3):
            total = sum(row[column] for row in rows) or 1
            for row in rows:
                share[row[0]] = max(share.get(row[0], 0), row[column] / total)
    shown = sorted((phase for phase in share if share[phase] > 0), key=lambda phase: -share[phase])[:PHASES]
    labels = [(f"phase{k}", phase) for k, phase in enumerate(shown)] + [("part-other", "other phases")]
    parts = []
    for column, title in ((3, "Between nodes"), (2, "Within nodes")):
        rows = []
        for i, run, own in phases:
            of = {row[0]: row[column] for row in own}
            values = [of.get(phase, 0) for phase in shown]
            rest = sum(value for phase, value in of.items() if phase not in shown)
            rows.append((name_cell(i, run), [*values, rest], size(sum(of.values()))))
        if any(sum(values) > 0 for _, values, _ in rows):
            present = [k for k in range(len(labels)) if any(values[k] > 0 for _, values, _ in rows)]
            rows = [(head, [values[k] for k in present], text) for head, values, text in rows]
            parts.append(f"<h3>{title}</h3>" + bars([labels[k] for k in present], rows, size))
    heads = [
        f'<th scope="col">{text}</th>'
        for text in ("Run", "Phase", "Calls per step", "Between nodes", "Within nodes", "Time of a worker")
    ]
    cells = [
        [
            name_cell(i, run),
            f"<th scope=row>{esc(phase)}</th>",
            f"{calls:.4g}",
            size(inter),
            size(intra),
            duration(seconds),
        ]
        for i, run, own in phases
        for phase, calls, intra, inter, seconds in own
    ]
    return (
        '<section id="bytes"><h2>Bytes of a step</h2>'
        "<p>Sent by all workers, per step and phase, with evaluation and agreement "
        "between workers.</p>"
        + "".join(parts)
        + f'<details><summary>Figures of each phase</summary>{table(heads, cells, "figures")}</details></section>'
    )


def config_section(runs, folder):
    def text(value):
        text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
        return text if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + "…"

    absent, configured = "–", [run for run in runs if run.config]
    keys = list(dict.fromkeys(key for run in configured for key in run.settings))
    values = {key: [text(run.settings[key]) if key in run.settings else absent for run in runs] for key in keys}
    different = [key for key in keys if len({values[key][i] for i, run in enumerate(runs) if run.config}) > 1]
    common = [key for key in different if all(key in run.settings for run in configured)]
    some = [key for key in different if key not in common]
    rows = lambda chosen: [[f"<th scope=row>{esc(key)}</th>", *values[key]] for key in chosen]
    body = (
        "<p>"
        + (f"{len(keys) - len(different)} keys are equal." if len(configured) > 1 else "There is one configuration.")
        + "</p>"
    )
    if common:
        body += table(run_heads(runs, "Key"), rows(common), "config")
    if some:
        opened = "" if common else " open"
        body += (
            f"<details{opened}><summary>{len(some)} keys of some runs only</summary>"
            f"{table(run_heads(runs, 'Key'), rows(some), 'config')}</details>"
        )
    for i, run in enumerate(runs):
        if run.config:
            path = os.path.relpath(run.folder.resolve() / "config.json", folder)
            link = "./" + urllib.parse.quote(os.fsencode(path))
            whole = json.dumps(run.config, indent=2, ensure_ascii=False)
            whole = "\n".join(printable(line) for line in whole.split("\n"))
            body += (
                f"<details><summary>{swatch(i)} {esc(run.name)}: all settings</summary>"
                f'<p><a href="{esc(link)}">{esc(path)}</a></p><pre>{html.escape(whole)}</pre></details>'
            )
    return f'<section id="config"><h2>Configuration</h2>{body}</section>'


def curves(runs):
    """The data of the script: runs with their curves, and charts."""
    evaluations, training = keys_of(runs, "evaluations"), keys_of(runs, "training")
    order = [key for key in ("loss", *evaluations, "accuracy") if key in evaluations or key in training]
    more = [key for key in training if key not in order]
    chart = lambda key, main: {
        "key": key,
        "title": printable(TITLES.get(key, key)),
        "percent": percent(key),
        "main": main,
        "smooth": key in training and key not in evaluations,
    }
    data = [
        {
            "name": run.name,
            "style": style(i),
            "curves": {
                key: run.metrics.points(curve)
                for key, curve in {**run.metrics.training, **run.metrics.evaluations}.items()
            },
        }
        for i, run in enumerate(runs)
    ]
    return {"runs": data, "charts": [chart(key, True) for key in order] + [chart(key, False) for key in more]}


def script_data(value):
    """JSON that cannot end its script element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def build(runs, unread, title, folder):
    """The page of the runs. unread: messages about runs that cannot be read; folder: the page's folder, for links."""
    css, script = ((HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    time = time_section(runs)  # first, because step_parts() may add notes
    parts = [
        ("summary", "Summary", summary_section(runs, unread)),
        ("curves", "Curves", (HERE / "curves.html").read_text(encoding="utf-8")),
        ("time", "Time", time),
        ("bytes", "Bytes", bytes_section(runs)),
        ("config", "Configuration", config_section(runs, folder)),
    ]
    links = "".join(f'<a href="#{name}">{label}</a>' for name, label, text in parts if text)
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    count = f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}"
    now = datetime.datetime.now().strftime("%Y-%m-%d %H:%M")
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<title>{esc(title)}</title>
<style>{css}</style></head>
<body><header><h1>{esc(title)}</h1><p class="small">{count}, {now}</p>
<nav>{links}</nav></header>
<main>{"".join(text for _, _, text in parts)}</main>
<script type="application/json" id="data">{script_data(curves(runs))}</script>
<script>{script}</script></body></html>
"""
