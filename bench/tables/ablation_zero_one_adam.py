#!/usr/bin/env python3
"""0/1 Adam: local steps, changes of the variance, scales of signs. 0.3 core-hours."""
from methods import KING_JAMES, variants
from series import Table

methods = variants(1e-3, "--optimizer zero_one_adam", {
    "default": "",
    "no local steps": "optimizer.max_interval=1",
    "at most 4 local steps": "optimizer.max_interval=4",
    "intervals double": "optimizer.intervals=doubling",
    "variance every 4 steps": "optimizer.variance_interval=4",
    "variance every step without local steps": "optimizer.variance_interval=1 optimizer.max_interval=1",
    "mean magnitude as scale": "optimizer.sign_scale=l1_mean",
    "no limit of the update": "optimizer.update_limit=0",
})
Table(
    name="ablation_zero_one_adam",
    title="0/1 Adam on the King James Bible, BERT-tiny, 400 steps, 4 nodes with 8 texts each, learning rate 1e-3.",
    flags="--task pretrain --model bert_tiny --epochs 50 --nodes 4 --batch 8 --dtype bf16 --max-steps 400",
    methods=methods,
    validation=None,
    **KING_JAMES,
).main()
