#!/usr/bin/env python3
"""Writes a configuration for each method of the comparison in docs/single_runs.md: OUT/cifar10/*.json, OUT/bert/*.json.

    configs/methods.py OUT

METHODS has one row per method: its name, the learning rates for CIFAR-10 and SST-2, the optimizer (None: the task's
default optimizer), the exchange, and other options of the optimizer.
"""
import json
import pathlib
import sys

METHODS = [
    ("sgdm", 0.2, 0.3, "sgdm", None, {}),
    ("adamw", 0.015, 0.001, "adamw", None, {}),
    ("adafactor", 0.09, 0.03, "adafactor", None, {}),
    ("lamb", 0.03, 0.015, "lamb", None, {}),
    ("softsignsgd", 0.01, 0.0005, "softsignsgd", None, {}),
    ("birder", 0.02, 0.0005, "birder", None, {}),
    ("birder_5_bytes", 0.02, 0.0005, "birder", None, {"moments": "bf16", "errors": "int8"}),
    ("one_bit_adam", 0.0015, 0.00025, "one_bit_adam", None, {}),
    ("zero_one_adam", 0.002, 3e-05, "zero_one_adam", None, {}),
    ("one_bit_lamb", 0.09, 0.0025, "one_bit_lamb", None, {}),
    ("signsgd", 0.003, 0.0005, "sgd", {"name": "signsgd"}, {}),
    ("ef_signsgd", 0.06, 0.0003, None, {"name": "ef_signsgd"}, {}),
    ("one_bit_sgd", 0.06, 0.0003, None, {"name": "one_bit_sgd"}, {}),
    ("qsgd", 0.2, 0.001, None, {"name": "qsgd"}, {}),
    ("terngrad", 0.2, 0.001, None, {"name": "terngrad"}, {}),
    ("topk", 0.2, 0.001, None, {"name": "topk"}, {}),
    ("randomk", 0.02, 0.0003, None, {"name": "randomk"}, {}),
    ("ef21", 0.06, 0.001, None, {"name": "ef21"}, {}),
    ("powersgd", 0.2, 0.001, None, {"name": "powersgd"}, {}),
    ("int8", 0.2, 0.001, None, {"name": "dense", "wire": "int8"}, {}),
    ("hierarchical_bf16", 0.2, 0.001, None, {"name": "hierarchical", "wire": "bf16"}, {}),
    ("zeropp", 0.2, 0.001, None, {"name": "zeropp"}, {}),
    ("loco", 0.2, 0.001, None, {"name": "loco"}, {}),
    ("loco_1_bit", 0.06, 0.0003, None, {"name": "loco", "bits": 1}, {}),
    ("loco_zero2", 0.2, 0.001, None, {"name": "loco", "sharding": "zero2", "parameter_wire": "bf16"}, {}),
    ("loco_zeropp", 0.2, 0.001, None, {"name": "loco_zeropp"}, {}),
]
COMMON = {"epochs": 1, "batch": 8, "nodes": 4, "workers_per_node": 2, "dtype": "bf16"}
CIFAR10 = {"model": "resnet20", "data": {"pad": 4, "flip": True}, "schedule": {"name": "cosine", "warmup_epochs": 0.25}}
BERT = {"task": "classify", "model": "bert_tiny", "data": {"length": 64}}
WEIGHT_DECAY = {name: 0.0005 for name in ("sgd", "sgdm")} | {
    name: 0.05 for name in ("adamw", "softsignsgd", "birder", "one_bit_adam", "zero_one_adam")
}  # for CIFAR-10; the other optimizers have their defaults


def configuration(task, optimizer, lr, exchange, more):
    """The configuration of one method as a dictionary."""
    options = {"name": optimizer, "lr": lr, **more}
    if task == "cifar10" and optimizer in WEIGHT_DECAY:
        options["weight_decay"] = WEIGHT_DECAY[optimizer]
    if task == "bert" and optimizer in ("one_bit_adam", "zero_one_adam", "one_bit_lamb"):
        options["warmup_fraction"] = 0.3
    config = {**(CIFAR10 if task == "cifar10" else BERT), "optimizer": options, **COMMON}
    return config | ({"exchange": exchange} if exchange else {})


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        sys.exit(0 if sys.argv[1:] in (["-h"], ["--help"]) else 2)
    for task, default in (("cifar10", "sgdm"), ("bert", "adamw")):
        folder = pathlib.Path(sys.argv[1]) / task
        folder.mkdir(parents=True, exist_ok=True)
        for name, lr_cifar10, lr_bert, optimizer, exchange, more in METHODS:
            lr = lr_cifar10 if task == "cifar10" else lr_bert
            config = configuration(task, optimizer or default, lr, exchange, more)
            (folder / f"{name}.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    main()
