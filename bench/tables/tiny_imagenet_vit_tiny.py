#!/usr/bin/env python3
"""20 classes of Tiny ImageNet, ViT-tiny, four epochs. 2.5 core-hours."""
from methods import TINY_IMAGENET, headline
from series import Table

methods = headline("adamw", 0.05, adamw=1e-3, birder=1e-3, softsignsgd=1e-3, one_bit_adam=1e-3)
Table(
    name="tiny_imagenet_vit_tiny",
    title="20 classes of Tiny ImageNet, ViT-tiny (patches of 8×8), four epochs of 78 steps, 4 nodes with 16 images each.",
    flags="--model vit_tiny --epochs 4 --nodes 4 --batch 16 --set data.crop=64 --set data.resize=64 --set model.patch_size=8 --set schedule.warmup_epochs=0.5 --dtype bf16",
    methods={name: methods[name] for name in ("adamw", "birder", "softsignsgd", "one_bit_adam", "loco_4_bits")},
    **TINY_IMAGENET,
).main()
