#!/usr/bin/env python3
"""Birder: error feedback, quantizer and β. 0.3 core-hours."""
from methods import KING_JAMES, variants
from series import Table

methods = variants(5e-4, "--optimizer birder", {
    "default": "",
    "error feedback of workers": "optimizer.error_feedback=worker",
    "error feedback of servers": "optimizer.error_feedback=server",
    "no error feedback": "optimizer.error_feedback=none",
    "quantizer sign": "optimizer.quantizer=sign",
    "beta 0.8": "optimizer.beta=0.8",
    "beta 0.95": "optimizer.beta=0.95",
    "beta 0.99": "optimizer.beta=0.99",
})
Table(
    name="ablation_birder",
    title="Birder on the King James Bible, BERT-tiny, 400 steps, 4 nodes with 8 texts each, learning rate 5e-4.",
    flags="--task pretrain --model bert_tiny --epochs 50 --nodes 4 --batch 8 --dtype bf16 --max-steps 400",
    methods=methods,
    validation=None,
    **KING_JAMES,
).main()
