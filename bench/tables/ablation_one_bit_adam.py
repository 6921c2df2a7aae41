#!/usr/bin/env python3
"""1-bit Adam: warm-up, limit of the update, refreshes of the variance, scales. 0.3 core-hours."""
from methods import KING_JAMES, variants
from series import Table

methods = variants(1e-3, "--optimizer one_bit_adam", {
    "default": "",
    "warm-up of 30 %": "optimizer.warmup_fraction=0.3",
    "warm-up of 50 %": "optimizer.warmup_fraction=0.5",
    "no limit of the update": "optimizer.update_limit=0",
    "no refreshes": "optimizer.refresh_variance=false",
    "a scale per 256 values": "optimizer.block_size=256",
    "mean magnitude as scale": "optimizer.sign_scale=l1_mean",
    "as published": "optimizer.update_limit=0 optimizer.refresh_variance=false optimizer.bias_correction=false optimizer.warmup=fixed",
})
Table(
    name="ablation_one_bit_adam",
    title="1-bit Adam on the King James Bible, BERT-tiny, 400 steps, 4 nodes with 8 texts each, learning rate 1e-3.",
    flags="--task pretrain --model bert_tiny --epochs 50 --nodes 4 --batch 8 --dtype bf16 --max-steps 400",
    methods=methods,
    validation=None,
    **KING_JAMES,
).main()
