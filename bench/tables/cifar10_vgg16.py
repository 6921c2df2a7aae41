#!/usr/bin/env python3
"""CIFAR-10, VGG-16, one epoch. 3 core-hours."""
from methods import CIFAR10, headline
from series import Table

methods = headline("adamw", 0.05, adamw=1e-3, birder=2.5e-3, softsignsgd=2.5e-3, one_bit_adam=5e-4)
Table(
    name="cifar10_vgg16",
    title="CIFAR-10, VGG-16, one epoch, 4 nodes with 32 images each.",
    flags="--model vgg16_cifar --epochs 1 --nodes 4 --batch 32 --set data.pad=4 --set schedule.warmup_epochs=0.1 --dtype bf16",
    methods={name: methods[name] for name in ("adamw", "birder", "softsignsgd", "one_bit_adam", "loco_4_bits")},
    **CIFAR10,
).main()
