#!/usr/bin/env python3
"""LoCo: weight β of the new error, steps T_c between resets, scale s of the stored error. 0.5 core-hours."""
from methods import KING_JAMES, variants
from series import Table

changes = {
    "default": "",
    "β 0.05": "exchange.error_gain_new=0.05",
    "β 0.5": "exchange.error_gain_new=0.5",
    "β 1": "exchange.error_gain_new=1",
    "T_c 64": "exchange.reset_every=64",
    "no resets": "exchange.reset_every=0",
    "s 1": "exchange.error_scale=1",
    "s 16": "exchange.error_scale=16",
}
methods = {f"{bits}: {name}": variant for bits, rate in (("4 bits", 1e-3), ("1 bit", 3e-4))
           for name, variant in variants(rate, f"--optimizer adamw --exchange loco exchange.bits={bits[0]}", changes).items()}
Table(
    name="ablation_loco",
    title="AdamW with LoCo on the King James Bible, BERT-tiny, 400 steps, 4 nodes with 8 texts each.",
    flags="--task pretrain --model bert_tiny --epochs 50 --nodes 4 --batch 8 --dtype bf16 --max-steps 400",
    methods=methods,
    validation=None,
    **KING_JAMES,
).main()
