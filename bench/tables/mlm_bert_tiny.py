#!/usr/bin/env python3
"""Masked words and next sentences of the Bible, BERT-tiny, 400 steps, 4 nodes with 8 texts each. About 1.5 hours on two cores."""
from methods import headline
from series import Table

Table(
    name="mlm_bert_tiny",
    title="The King James Bible, BERT-tiny, 400 steps, 4 nodes with 8 texts of 128 tokens each.",
    program="train_bert",
    flags="--task pretrain --model bert_tiny --max-steps 400 --epochs 50 --nodes 4 --batch 8".split(),
    methods=headline({"sgdm": 0.1, "adam": 1e-3, "sign": 1e-3}, base="adamw"),
    metric="mlm_loss",
    better=min,
    unit="loss of masked words",
).main()
