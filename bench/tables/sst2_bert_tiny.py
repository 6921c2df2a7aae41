#!/usr/bin/env python3
"""SST-2, BERT-tiny from random weights, one epoch. 0.9 core-hours."""
from methods import SST2, headline
from series import Table

Table(
    name="sst2_bert_tiny",
    title="SST-2, BERT-tiny from random weights, one epoch of 1,052 steps, 4 nodes with 16 sentences each.",
    flags="--task classify --model bert_tiny --length 64 --epochs 1 --nodes 4 --batch 16 --dtype bf16",
    seeds=range(1, 6),
    methods=headline("adamw", sgdm_decay=0.01, adamw=1e-3, one_bit_adam=5e-4, zero_one_adam=5e-4, birder=5e-4, softsignsgd=5e-4, sgdm=0.2, birder_beta_half=1e-3),
    **SST2,
).main()
