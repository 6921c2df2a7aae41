#!/usr/bin/env python3
"""CIFAR-10, ResNet-20, two epochs, 4 nodes with 16 images each. About 3 hours on two cores.

Needs --data FOLDER with the binary files of CIFAR-10.
"""
from methods import headline
from series import Table

Table(
    name="cifar10_resnet20",
    title="CIFAR-10, ResNet-20, two epochs, 4 nodes with 16 images each.",
    program="train_resnet",
    flags="--model resnet20 --epochs 2 --nodes 4 --batch 16 --set data.pad=4 --set schedule.warmup_epochs=0.25".split(),
    methods=headline({"sgdm": 0.1, "adam": 0.003, "sign": 0.005}, base="sgdm", decay=0.05),
    metric="test_top1",
    better=max,
    factor=100,
    unit="test accuracy, %",
).main()
