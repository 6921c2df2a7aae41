#!/usr/bin/env python3
"""Birder with n nodes of m workers on SST-2, 64 sentences per step. 1.1 core-hours."""
from methods import SST2, birder_by_nodes
from series import Table

Table(
    name="ablation_nodes_sst2",
    title="n nodes of m workers on SST-2, BERT-tiny from random weights, one epoch of 1,052 steps of 64 sentences.",
    flags="--task classify --model bert_tiny --length 64 --epochs 1 --dtype bf16",
    methods=birder_by_nodes(1e-3, 64, ((1, 8), (4, 2), (8, 1), (16, 1))),
    validation=None,
    **SST2,
).main()
