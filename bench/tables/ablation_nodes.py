#!/usr/bin/env python3
"""n nodes of m workers, the same 32 texts in a step. 0.7 core-hours."""
from methods import options
from series import Table

shapes = {(n, m): f"--nodes {n} --workers-per-node {m} --batch {32 // (n * m)}" for n, m in ((1, 8), (2, 4), (4, 2), (8, 1), (16, 1))}
birder, methods = 5e-4, {}
for name, change in (("birder", ""), ("birder compensated", " optimizer.compensate_nodes=true"), ("birder rate·√n", "")):
    for (n, m), shape in shapes.items():
        if n > 1 or name == "birder":
            rate = birder * n ** 0.5 if "√" in name else birder
            methods[f"{name} {n} × {m}"] = rate, options(f"--optimizer birder {shape}{change}")
for (n, m), shape in shapes.items():
    methods[f"one_bit_adam {n} × {m}"] = 1e-3, options(f"--optimizer one_bit_adam {shape}")
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
