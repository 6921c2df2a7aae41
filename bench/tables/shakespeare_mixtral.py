#!/usr/bin/env python3
"""Tiny Shakespeare by characters, a mixture of experts, 2,000 steps, one learning rate for methods with Adam's updates.
1.3 core-hours."""
from methods import TINY_SHAKESPEARE, language_models
from series import Table

Table(
    name="shakespeare_mixtral",
    title="Tiny Shakespeare by characters, Mixtral with 4 layers of width 128 and 2 of 4 experts, 2,000 steps, 4 nodes × 2 workers with 2 blocks of 64 characters each.",
    flags="--model mixtral_nano --tokenizer characters --context 64 --batch 2 --nodes 4 --workers-per-node 2 --max-steps 2000 "
          "--set schedule.warmup_steps=100 --set generate.tokens=0",
    methods=language_models(adamw=1e-3, one_bit_adam=1e-3, zero_one_adam=1e-3, birder=2e-3),
    **TINY_SHAKESPEARE,
).main()
