#!/usr/bin/env python3
"""20 classes of Tiny ImageNet, ResNet-50, four epochs. 2.5 core-hours."""
from methods import TINY_IMAGENET, headline
from series import Table

methods = headline("sgdm", 0.05, sgdm=0.02, birder=2e-3, softsignsgd=2e-3, one_bit_adam=1e-3)
Table(
    name="tiny_imagenet_resnet50",
    title="20 classes of Tiny ImageNet, ResNet-50, four epochs of 78 steps, 4 nodes with 16 images each.",
    flags="--model resnet50 --epochs 4 --nodes 4 --batch 16 --set data.crop=64 --set data.resize=64 --set schedule.warmup_epochs=0.5 --dtype bf16",
    methods={name: methods[name] for name in ("sgdm", "birder", "softsignsgd", "one_bit_adam", "loco_4_bits")},
    **TINY_IMAGENET,
).main()
