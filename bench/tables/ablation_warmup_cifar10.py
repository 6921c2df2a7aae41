#!/usr/bin/env python3
"""1-bit Adam on CIFAR-10: length of the warm-up. 0.15 core-hours."""
from methods import CIFAR10, variants
from series import Table

Table(
    name="ablation_warmup_cifar10",
    title="1-bit Adam on CIFAR-10, ResNet-20, one epoch of 781 steps, 195 of them with a rising learning rate, 4 nodes with 16 images each.",
    flags="--model resnet20 --epochs 1 --nodes 4 --batch 16 --set data.pad=4 --set schedule.warmup_epochs=0.25 --dtype bf16",
    methods=variants(0.02, "--optimizer one_bit_adam optimizer.weight_decay=0.05", {
        "default": "",
        "warm-up of 30 %": "optimizer.warmup_fraction=0.3",
        "warm-up of 50 %": "optimizer.warmup_fraction=0.5",
        "no limit of the update": "optimizer.update_limit=0",
    }),
    validation=None,
    **CIFAR10,
).main()
