#!/usr/bin/env python3
"""Draws timeline.png: one step of rank 0 from the traces of several runs, on one axis of time.

  docs/plots/timeline.py LABEL=RUN_DIR ...

The runs have been made with --trace; the second last traced step is drawn. Numbers in the row "exchange" are buckets.
Needs matplotlib.
"""
import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLORS = {"forward": "C0", "backward": "C9", "finish step": "lightgray", "compress": "C1", "communicate": "C3", "update": "C2"}
ROWS = {"compute": 1, "communication": 0}


def spans(folder):
    """(row, kind, bucket, begin, seconds) of the events of one step; begin is in seconds from the beginning of the step."""
    trace = json.loads((pathlib.Path(folder) / "trace.json").read_text())
    events = [event for event in trace["traceEvents"] if event["pid"] == 0]
    rows = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    wanted = f"step {trace['otherData']['last_step'] - 1}"
    step = next(event for event in events if event["name"] == wanted)
    begin, end = step["ts"], step["ts"] + step["dur"]
    for event in events:
        kind, _, bucket = event["name"].partition(" ") if event["name"] not in COLORS else (event["name"], "", "")
        if event["ph"] == "X" and kind in COLORS and begin <= event["ts"] < end and rows[event["tid"]] in ROWS:
            yield rows[event["tid"]], kind, bucket, (event["ts"] - begin) / 1e6, event["dur"] / 1e6


def main():
    runs = [argument.partition("=")[::2] for argument in sys.argv[1:]]
    if not runs or not all(folder for _, folder in runs):
        sys.exit(__doc__)
    figure, panels = plt.subplots(len(runs), figsize=(8, 1.5 * len(runs) + 0.8), sharex=True, squeeze=False, layout="constrained")
    for (label, folder), (axes,) in zip(runs, panels):
        for row, kind, bucket, begin, seconds in spans(folder):
            axes.broken_barh([(begin, seconds)], (ROWS[row] - 0.4, 0.8), facecolors=COLORS[kind], edgecolor="white", linewidth=0.4)
            if kind == "communicate" and seconds > 0.02:
                axes.text(begin + seconds / 2, ROWS[row], bucket, ha="center", va="center", fontsize=7, color="white")
        axes.set_yticks(list(ROWS.values()), ["compute", "exchange"])
        axes.set_title(label, fontsize=10, loc="left")
        axes.set_ylim(-0.6, 1.6)
    panels[-1][0].set_xlabel("seconds from the beginning of the step")
    handles = [plt.Rectangle((0, 0), 1, 1, color=color) for color in COLORS.values()]
    panels[-1][0].legend(handles, ["waiting" if kind == "finish step" else kind for kind in COLORS], loc="upper center", bbox_to_anchor=(0.5, -0.35),
                         ncols=len(COLORS), fontsize=8)
    figure.savefig(pathlib.Path(__file__).with_suffix(".png"), dpi=110)


main()
