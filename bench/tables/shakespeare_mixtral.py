#!/usr/bin/env python3
"""Tiny Shakespeare by characters, a mixture of experts, 2,000 steps, one learning rate for all methods. 1 core-hour."""
from methods import language_models
from series import Table

Table(
    name="shakespeare_mixtral",
    title="Tiny Shakespeare by characters, Mixtral with 4 layers of width 128 and 2 of 4 experts, 2,000 steps, 4 nodes × 2 workers with 2 blocks of 64 characters each.",
    program="train_gpt",
    flags="--model mixtral_nano --tokenizer characters --context 64 --batch 2 --nodes 4 --workers-per-node 2 --max-steps 2000 "
          "--set schedule.warmup_steps=100 --set generate.tokens=0",
    methods=language_models(adamw=1e-3, one_bit_adam=1e-3, zero_one_adam=1e-3),
    metric="val_loss",
    better=min,
    unit="validation loss",
    data="input.txt of tiny Shakespeare",
    validation=None,
).main()
