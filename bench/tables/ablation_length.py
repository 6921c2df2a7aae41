#!/usr/bin/env python3
"""Runs of 200 to 1,600 steps: does the distance from AdamW shrink? 1.2 core-hours."""
from series import Table

methods = {f"{name} {steps} steps": (rate, f"--optimizer {name} --max-steps {steps}".split())
           for steps in (200, 400, 800, 1600)
           for name, rate in (("adamw", 1e-3), ("one_bit_adam", 1e-3), ("zero_one_adam", 1e-3), ("birder", 5e-4))}
Table(
    name="ablation_length",
    title="Runs of 200 to 1,600 steps on the King James Bible, BERT-tiny, 4 nodes with 8 texts each.",
    program="train_bert",
    flags="--task pretrain --model bert_tiny --epochs 50 --nodes 4 --batch 8 --dtype bf16",
    methods=methods,
    metric="mlm_loss",
    better=min,
    unit="loss of masked words",
    validation=None,
).main()
