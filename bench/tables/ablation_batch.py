#!/usr/bin/env python3
"""Batches of 16 to 128 texts, 12,800 texts in total; learning rates are proportional to the square root of the batch.
0.4 core-hours."""
from methods import KING_JAMES
from series import Table

methods = {f"{name} {4 * batch} texts": (rate * (batch / 8) ** 0.5, f"--optimizer {name} --batch {batch} --max-steps {3200 // batch}".split())
           for name, rate in (("adamw", 1e-3), ("softsignsgd", 5e-4), ("birder", 5e-4)) for batch in (4, 8, 16, 32)}
Table(
    name="ablation_batch",
    title="Batch size on the King James Bible, BERT-tiny, 12,800 texts, 4 nodes.",
    flags="--task pretrain --model bert_tiny --epochs 50 --nodes 4 --dtype bf16",
    methods=methods,
    validation=None,
    **KING_JAMES,
).main()
