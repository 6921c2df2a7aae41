#!/usr/bin/env python3
"""Prints the scalars of a run directory, as TensorBoard's own reader sees them: {"tag": [[step, value], …], …}. Exit
status 3 if the module tensorboard is missing."""
import json
import sys

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    sys.exit(3)
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0}).Reload()
print(json.dumps({tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}))
