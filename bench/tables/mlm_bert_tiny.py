#!/usr/bin/env python3
"""Masked words and next sentences of the Bible, BERT-tiny, 400 steps. 1.1 core-hours."""
from methods import KING_JAMES, headline
from series import Table

Table(
    name="mlm_bert_tiny",
    title="The King James Bible, BERT-tiny, 400 steps, 4 nodes with 8 texts of 128 tokens each.",
    flags="--task pretrain --model bert_tiny --max-steps 400 --epochs 50 --nodes 4 --batch 8 --dtype bf16",
    seeds=range(1, 6),
    methods=headline("adamw", sgdm_decay=0.01, adamw=1e-3, one_bit_adam=1e-3, zero_one_adam=5e-4, birder=5e-4, softsignsgd=5e-4, sgdm=0.2, birder_beta_half=1e-3),
    **KING_JAMES,
).main()
