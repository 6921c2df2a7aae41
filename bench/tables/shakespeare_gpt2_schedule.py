#!/usr/bin/env python3
"""GPT-2 with the schedules of the 0/1 Adam paper (appendix C), scaled from 300,000 to 2,000 steps. 0.5 core-hours."""
from methods import TINY_SHAKESPEARE, variants
from series import Table

# 3K of 300K steps of linear warm-up, then one cosine to 1e-5 of 1.5e-4; 80K of 300K steps of 1-bit Adam are uncompressed.
Table(
    name="shakespeare_gpt2_schedule",
    title="Tiny Shakespeare by characters, GPT-2 with 4 layers of width 128, 2,000 steps, 4 nodes × 2 workers with 2 blocks of 64 characters each.",
    flags="--model gpt2_nano --tokenizer characters --context 64 --batch 2 --nodes 4 --workers-per-node 2 --max-steps 2000 "
          "--set schedule.name=cosine --set schedule.warmup_steps=20 --set schedule.final_fraction=0.067 --set generate.tokens=0",
    methods={
        **variants(1e-3, "--optimizer adamw exchange.sharding=none", {"adamw": ""}),
        **variants(1e-3, "--optimizer one_bit_adam exchange.sharding=none optimizer.warmup=fixed optimizer.warmup_steps=533", {"one_bit_adam": ""}),
        **variants(1e-3, "--optimizer zero_one_adam exchange.sharding=none optimizer.warmup_steps=20", {"zero_one_adam": ""}),
    },
    **TINY_SHAKESPEARE,
).main()
