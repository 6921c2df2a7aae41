#!/usr/bin/env python3
"""0/1 Adam on CIFAR-10: local steps, changes of the variance, scales of signs. 0.9 core-hours."""
from methods import variants
from series import Table

Table(
    name="ablation_zero_one_adam_cifar10",
    title="0/1 Adam on CIFAR-10, ResNet-20, four epochs of 781 steps, 4 nodes with 16 images each, learning rate 0.01.",
    program="train_resnet",
    flags="--model resnet20 --epochs 4 --nodes 4 --batch 16 --set data.pad=4 --set schedule.warmup_epochs=0.25 --dtype bf16",
    methods=variants(0.01, "--optimizer zero_one_adam optimizer.weight_decay=0.05", {
        "default": "",
        "no local steps": "optimizer.max_interval=1",
        "at most 4 local steps": "optimizer.max_interval=4",
        "variance every 8 steps": "optimizer.variance_interval=8",
        "variance every step, no local steps": "optimizer.variance_interval=1 optimizer.max_interval=1",
        "mean magnitude as scale": "optimizer.sign_scale=l1_mean",
        "no limit of the update": "optimizer.update_limit=0",
    }),
    metric="test_top1",
    better=max,
    factor=100,
    unit="test accuracy, %",
    data="the binary files of CIFAR-10",
    validation=None,
).main()
