#!/usr/bin/env python3
"""CIFAR-10, ResNet-20, one epoch; learning rates are chosen with 400 steps. 1 core-hour."""
from methods import CIFAR10, headline
from series import Table

Table(
    name="cifar10_resnet20",
    title="CIFAR-10, ResNet-20, one epoch of 781 steps, 4 nodes with 16 images each.",
    flags="--model resnet20 --epochs 1 --nodes 4 --batch 16 --set data.pad=4 --set schedule.warmup_epochs=0.25 --dtype bf16",
    methods=headline("sgdm", 0.05, adamw=5e-3, one_bit_adam=2.5e-3, zero_one_adam=2.5e-3, birder=0.01, softsignsgd=0.01, sgdm=0.2, birder_beta_half=0.01),
    validation="--max-steps 400 --set validation=10".split(),
    **CIFAR10,
).main()
