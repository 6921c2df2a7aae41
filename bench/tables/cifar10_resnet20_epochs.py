#!/usr/bin/env python3
"""CIFAR-10, ResNet-20, one to eight epochs with the learning rates of cifar10_resnet20.py. 2.5 core-hours."""
from series import Table

methods = {f"{name} {epochs} epochs": (rate, f"--optimizer {name} --epochs {epochs} --set optimizer.weight_decay=0.05".split())
           for epochs in (1, 2, 4, 8)
           for name, rate in (("adamw", 5e-3), ("birder", 0.01), ("one_bit_adam", 2.5e-3), ("zero_one_adam", 2.5e-3))}
Table(
    name="cifar10_resnet20_epochs",
    title="CIFAR-10, ResNet-20, one to eight epochs, 4 nodes with 16 images each, learning rates of the table of one epoch.",
    program="train_resnet",
    flags="--model resnet20 --nodes 4 --batch 16 --set data.pad=4 --set schedule.warmup_epochs=0.25 --dtype bf16",
    methods=methods,
    metric="test_top1",
    better=max,
    factor=100,
    unit="test accuracy, %",
    data="the binary files of CIFAR-10",
    seeds=(1, 2),
    validation=None,
).main()
