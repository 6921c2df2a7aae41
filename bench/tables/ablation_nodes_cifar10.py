#!/usr/bin/env python3
"""Birder with n nodes of m workers on CIFAR-10, 64 images per step. 1.7 core-hours."""
from methods import CIFAR10, birder_by_nodes
from series import Table

Table(
    name="ablation_nodes_cifar10",
    title="n nodes of m workers on CIFAR-10, ResNet-20, one epoch of 781 steps of 64 images.",
    flags="--model resnet20 --epochs 1 --set data.pad=4 --set schedule.warmup_epochs=0.25 --dtype bf16",
    methods=birder_by_nodes(0.01, 64, ((1, 16), (4, 4), (8, 2), (16, 1))),
    validation=None,
    **CIFAR10,
).main()
