#!/usr/bin/env python3
"""CIFAR-10, ResNet-20, four epochs, one learning rate for all methods with Adam's updates. 1.2 core-hours."""
from methods import CIFAR10, headline
from series import Table

Table(
    name="cifar10_resnet20_epochs",
    title="CIFAR-10, ResNet-20, four epochs of 781 steps, 4 nodes with 16 images each.",
    flags="--model resnet20 --epochs 4 --nodes 4 --batch 16 --set data.pad=4 --set schedule.warmup_epochs=0.25 --dtype bf16",
    methods=headline("sgdm", 0.05, adamw=0.01, one_bit_adam=0.01, zero_one_adam=0.01, birder=0.01, softsignsgd=0.01, sgdm=0.2),
    validation=None,
    **CIFAR10,
).main()
