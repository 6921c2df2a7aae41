#!/usr/bin/env python3
"""Writes events.reference with TensorBoard's own writer and messages; made with tensorboard 2.21.0."""
import pathlib

from tensorboard.compat.proto import event_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

with open(pathlib.Path(__file__).with_name("events.reference"), "wb") as file:
    writer = RecordWriter(file)

    def add(**fields):
        writer.write(event_pb2.Event(**fields).SerializeToString())

    def scalars(**fields):
        event = event_pb2.Event(**{key: fields[key] for key in ("wall_time", "step")})
        for tag, value in fields["values"]:
            event.summary.value.add(tag=tag, simple_value=value)
        writer.write(event.SerializeToString())

    add(wall_time=1700000000.25, file_version="brain.Event:2")
    add(wall_time=1700000000.5, step=301, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START))
    scalars(wall_time=1700000001.0, step=0, values=[("train/loss", 0.1)])
    scalars(wall_time=1700000002.0, step=123456789012, values=[("train/loss", -2.5), ("train/accuracy", 0.0),
                                                              ("evaluation/" + 120 * "x", 1e30)])
