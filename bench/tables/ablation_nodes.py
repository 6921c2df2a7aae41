#!/usr/bin/env python3
"""Birder with n nodes of m workers, the same 32 texts in a step. 0.4 core-hours."""
from methods import variants
from series import Table

shapes = {f"{n} × {m}": f"--nodes {n} --workers-per-node {m} --batch {32 // (n * m)}" for n, m in ((1, 8), (2, 4), (4, 2), (8, 1), (16, 1))}
methods = {f"{name} {shape}": variant for name, rate in (("birder", 5e-4), ("one_bit_adam", 1e-3))
           for shape, variant in variants(rate, f"--optimizer {name}", shapes).items()}
Table(
    name="ablation_nodes",
    title="n nodes of m workers on the King James Bible, BERT-tiny, 400 steps of 32 texts.",
    program="train_bert",
    flags="--task pretrain --model bert_tiny --epochs 50 --dtype bf16 --max-steps 400",
    methods=methods,
    metric="mlm_loss",
    better=min,
    unit="loss of masked words",
    validation=None,
).main()
