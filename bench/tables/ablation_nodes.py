#!/usr/bin/env python3
"""n nodes of m workers, 32 texts per step. 0.7 core-hours."""
from methods import KING_JAMES, birder_by_nodes, options
from series import Table

shapes = ((1, 8), (2, 4), (4, 2), (8, 1), (16, 1))
methods = birder_by_nodes(5e-4, 32, shapes)
for n, m in shapes:
    methods[f"one_bit_adam {n} × {m}"] = 1e-3, options(f"--optimizer one_bit_adam --nodes {n} --workers-per-node {m} --batch {32 // (n * m)}")
Table(
    name="ablation_nodes",
    title="n nodes of m workers on the King James Bible, BERT-tiny, 400 steps of 32 texts.",
    flags="--task pretrain --model bert_tiny --epochs 50 --dtype bf16 --max-steps 400",
    methods=methods,
    validation=None,
    **KING_JAMES,
).main()
